"""Qwen3-VL: the time of each temporal patch as text, a bound on the pixels of a whole clip, DeepStack."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from agentic_video.families.base import Encode, ProcessorRules
from agentic_video.families.qwen_vl import QwenVL, layout_seam, modules_of
from agentic_video.families.qwen_vl_clips import patch_times
from agentic_video.families.shapes import ActivationBytes, TextShape, VisionShape
from agentic_video.utils.seam import Seam

if TYPE_CHECKING:
    from agentic_video.families.tiny import TinyModels


class Qwen3VL(QwenVL):
    """The family."""

    model_types = ("qwen3_vl",)
    processor_classes = ("Qwen3VLProcessor",)
    example = "Qwen/Qwen3-VL-8B-Instruct"
    preloaded = modules_of("qwen3_vl")
    seams: ClassVar[tuple[Seam, ...]] = (
        layout_seam("qwen3_vl", get_vision_bilinear_indices_and_weights="73cd5334bab9"),
    )
    activations = ActivationBytes(heads=10, block_hidden=20, block_intermediate=6)
    timestamped = True

    def clip_runs(self, times: Sequence[float]) -> int:
        return len(patch_times(times))

    def clip_ids(
        self,
        encode: Encode,
        rules: ProcessorRules,
        run: Callable[[int], list[int]],
        times: Sequence[float],
        tokens: int,
    ) -> list[int]:
        moments = patch_times(times)
        placeholders = run(tokens // len(moments))
        return [token for seconds in moments for token in (*encode(timestamp(seconds)), *placeholders)]

    def timed_grids(
        self, vision: Any, clips: Sequence[Sequence[int]], seconds: Sequence[float]
    ) -> list[tuple[Sequence[int], float]]:
        """See the base; each temporal patch has a run of its own."""
        return [((1, height, width), 1.0) for time, height, width in clips for _ in range(time)]

    def vision_shape(self, config: Mapping[str, Any]) -> VisionShape:
        vision = config["vision_config"]
        return replace(
            super().vision_shape(config),
            deepstack=len(vision.get("deepstack_visual_indexes", ())),
            positions=vision.get("num_position_embeddings", 0),
        )

    def attention_extras(self, text: TextShape) -> int:
        """See the base; norms of a query's and of a key's head."""
        return 2 * text.head_dim

    def block_parameters(self, vision: VisionShape) -> int:
        width, inner = vision.hidden, vision.intermediate
        return 4 * width * width + 4 * width + 2 * width * inner + inner + width + 4 * width

    def tower_parameters(self, vision: VisionShape, out: int) -> int:
        merger, wide = self.merger_parameters(vision, out), vision.merge**2 * vision.hidden
        embeddings = vision.hidden * vision.patch_values + vision.hidden + vision.positions * vision.hidden
        mergers = merger + 2 * vision.hidden + vision.deepstack * (merger + 2 * wide)
        return embeddings + vision.depth * self.block_parameters(vision) + mergers

    @cached_property
    def tiny(self) -> "TinyModels":
        from agentic_video.families.qwen_vl_tiny import TinyQwen3VL

        return TinyQwen3VL(self.timed_grids)


def timestamp(seconds: float) -> str:
    """Text that the model reads before a temporal patch."""
    return f"<{seconds:.1f} seconds>"
