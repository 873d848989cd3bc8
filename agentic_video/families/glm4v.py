"""GLM-4.1V and GLM-4.6V-Flash: the time of each temporal patch as text after it, bounds on the pixels of all frames."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from math import isqrt
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from agentic_video.families.base import Encode, ProcessorError, ProcessorRules
from agentic_video.families.qwen_vl import QwenVL, TowerOutput, layout_seam
from agentic_video.families.qwen_vl_clips import FRAMES_OF_PATCH
from agentic_video.families.qwen_vl_sizes import GridRules, ProcessorFacts, rules_in, rules_of
from agentic_video.families.shapes import ActivationBytes, TextShape, VisionShape
from agentic_video.utils.seam import Seam
from agentic_video.video.sizes import check_sides, fit_size

if TYPE_CHECKING:
    import torch

    from agentic_video.families.tiny import TinyModels

IMAGE_ENDS = "<|begin_of_image|>", "<|end_of_image|>"
"""Text around the placeholders of an image, and of each temporal patch of a clip."""
CLIP_ENDS = "<|begin_of_video|>", "<|end_of_video|>"
IMAGE_DEFAULTS = ProcessorFacts(112 * 112, 28 * 28 * 15000, 14, 2, 2)
CLIP_DEFAULTS = ProcessorFacts(112 * 112, 28 * 28 * 2 * 30000, 14, 2, 2)
"""Defaults of transformers' classes."""
SEAMS = (
    Seam(
        "agentic_video.families.glm4v:tower_tensors",
        "verl.models.transformers.glm4v",
        {"verl.models.transformers.glm4v:_get_input_embeds": "fef279896882"},
        "verl's forward takes the vision tower's output for a tensor, which it isn't from transformers 5 on",
    ),
    Seam(
        "agentic_video.families.glm4v:gathered_positions",
        "verl.utils.fsdp_utils",
        {
            "verl.utils.fsdp_utils:_select_fsdp2_wrap_targets": "f738ec112a90",
            "transformers.models.glm4v.modeling_glm4v:Glm4vVisionEmbeddings.forward": "cbff359c6bc3",
        },
        "FSDP2 shards the tower's position embedding, of which the model interpolates the weight itself",
    ),
    Seam(
        "agentic_video.families.glm4v:text_flops",
        "verl.utils.flops_counter",
        {"verl.utils.flops_counter:_estimate_qwen2_flops": "0906fe11ad3f"},
        "an update fails: the sizes of the language model are looked for at the top of the config",
    ),
)


@dataclass(frozen=True)
class GlmRules(GridRules):
    """Sizes that GLM's processors keep; an image counts as a temporal patch's frames.

    Attributes:
        decimals: GLM-4.6V's processor, which writes times as ``1.5 seconds``; GLM-4.1V's writes ``1``.
    """

    decimals: bool = field(default=False, compare=False)

    def resized(self, width: int, height: int, frames: int = 0) -> tuple[int, int]:
        if frames and self.clip is None:
            raise ProcessorError("this model has no video processor, so it can't be shown clips")
        count = frames or self.temporal
        check_sides(width, height)
        if min(width, height) < self.side:
            scale = max(self.side / width, self.side / height)
            width, height = int(width * scale), int(height * scale)
        padded = round(count / self.temporal) * self.temporal
        return fit_size(width, height, self.clip if frames and self.clip else self.image, count, padded)

    def kept(self, width: int, height: int, frames: int = 0) -> tuple[int, int]:
        return ProcessorRules.kept(self, width, height, frames)

    @property
    def most_image_tokens(self) -> int:
        """See the base; of a square image, for which vLLM reserves room: others have some more."""
        return isqrt(self.image.max_pixels // self.temporal // self.side**2) ** 2

    def most_clip_tokens(self, model_len: int) -> int:
        """See the base; for GLM-4.1V a video of square images that a sequence has room for beside one image."""
        most, image = super().most_clip_tokens(model_len), self.most_image_tokens
        return most if self.decimals else min(most, image * max(1, model_len // image - 1))

    def timestamp(self, seconds: float) -> str:
        """Text that the model reads after a temporal patch: the time of its first frame."""
        return f"{seconds:.1f} seconds" if self.decimals else str(int(seconds))


class Glm4v(QwenVL):
    """The family: Qwen2.5-VL's positions and patches, with other tokens, towers and times.

    Both processors write clips with the placeholder of images, between tokens that begin and end a clip. Here, as in
    vLLM's GLM-4.1V, clips have their own, and the trainer gives the model images: it never reads a placeholder's own
    embedding.
    """

    model_types = ("glm4v",)
    processor_classes = ("Glm4vProcessor", "Glm46VProcessor")
    example = "zai-org/GLM-4.1V-9B-Thinking"
    image_token = "<|image|>"
    video_token = "<|video|>"
    preloaded = ("transformers.models.glm4v.modeling_glm4v", "vllm.model_executor.models.glm4_1v")
    seams = (*SEAMS, layout_seam("glm4v"))
    activations = ActivationBytes(heads=4, block_hidden=27, block_intermediate=12, ends=16, hidden=45, intermediate=8)
    """A layer is at its peak in the norm after its MLP. ``ends`` are without the merger's, which are gone by the time a
    block needs most."""
    timestamped = True

    def rules(self, processor: Any) -> GlmRules:
        return _rules(rules_of(processor), "46V" in type(processor).__name__)

    def rules_in(self, folder: Path) -> GlmRules:
        defaults = {"image_defaults": IMAGE_DEFAULTS, "clip_defaults": CLIP_DEFAULTS}
        return _rules(rules_in(folder, timestamped=True, own_pixels=False, **defaults))

    def published_rules(self, facts: Any) -> GlmRules:
        return _rules(super().published_rules(facts))

    def clip_runs(self, times: Sequence[float]) -> int:
        return len(times[::FRAMES_OF_PATCH])

    def clip_ids(
        self,
        encode: Encode,
        rules: ProcessorRules,
        run: Callable[[int], list[int]],
        times: Sequence[float],
        tokens: int,
    ) -> list[int]:
        assert isinstance(rules, GlmRules)
        (before, after), moments = map(encode, IMAGE_ENDS), times[::FRAMES_OF_PATCH]
        pads = encode(self.video_token) * (tokens // len(moments))
        inner = [token for time in moments for token in (*before, *pads, *after, *encode(rules.timestamp(time)))]
        return [*encode(CLIP_ENDS[0]), *inner, *encode(CLIP_ENDS[1])]

    def timed_grids(
        self, vision: Any, clips: Sequence[Sequence[int]], seconds: Sequence[float]
    ) -> list[tuple[Sequence[int], float]]:
        """See the base; each temporal patch has a run of its own."""
        return [((1, height, width), 1.0) for time, height, width in clips for _ in range(time)]

    def in_one_pass(
        self, processor: Any, ids: "torch.Tensor", inputs: Mapping[str, Any]
    ) -> "tuple[torch.Tensor, Mapping[str, Any]]":
        """See the base; the tower takes images of one moment only."""
        from agentic_video.families.qwen_vl_inputs import one_moment

        ids, made = super().in_one_pass(processor, ids, inputs)
        return ids, made if made is inputs else {**made, "image_grid_thw": one_moment(made["image_grid_thw"])}

    def prepare_vllm(self) -> None:
        """Let vLLM show several clips in a prompt, with the processor's times and a placeholder of their own."""
        from agentic_video.families.glm4v_clips import mend_clips

        mend_clips()

    def vision_shape(self, config: Mapping[str, Any]) -> VisionShape:
        vision = config["vision_config"]
        sizes = {**vision, "intermediate_size": vision["out_hidden_size"]}
        shape = super().vision_shape({"vision_config": sizes})
        return replace(shape, positions=(vision["image_size"] // shape.patch) ** 2, merger=vision["intermediate_size"])

    def layer_parameters(self, text: TextShape) -> int:
        """See the base; norms after attention and MLP, too."""
        return super().layer_parameters(text) + 2 * text.hidden

    def adapter_ends(self, text: TextShape) -> int:
        """See the base; the MLP's first two layers are one."""
        return super().adapter_ends(text) - text.layers * text.hidden

    def block_parameters(self, vision: VisionShape) -> int:
        """See the base; a gated MLP, no biases, RMS norms."""
        width, inner = vision.hidden, vision.intermediate
        return 4 * width * width + 3 * width * inner + 2 * width

    def tower_parameters(self, vision: VisionShape, out: int) -> int:
        width = vision.hidden
        embeddings = width * vision.patch_values + width + vision.positions * width + 2 * width
        merged = vision.merge**2 * width * out + out
        merger = out * out + 2 * out + 3 * out * vision.merger
        return embeddings + vision.depth * self.block_parameters(vision) + merged + merger

    @cached_property
    def tiny(self) -> "TinyModels":
        from agentic_video.families.glm4v_tiny import TinyGlm4v

        return TinyGlm4v(self.timed_grids)


def _rules(rules: GridRules, decimals: bool = False) -> GlmRules:
    return GlmRules(**vars(rules), decimals=decimals)


def tower_tensors(glm4v: ModuleType) -> None:
    """Give verl's forward the visual tokens of the vision tower's output."""
    original = glm4v._get_input_embeds

    @wraps(original)
    def _get_input_embeds(model: Any, *args: Any, **more: Any) -> Any:
        return original(TowerOutput(model), *args, **more)

    glm4v._get_input_embeds = _get_input_embeds  # type: ignore[attr-defined]


def gathered_positions(fsdp_utils: ModuleType) -> None:
    """Keep the tower's position embedding in FSDP2's root unit, which is gathered during the whole pass."""
    original = fsdp_utils._select_fsdp2_wrap_targets

    @wraps(original)
    def _select_fsdp2_wrap_targets(model: Any, *args: Any) -> list[Any]:
        held = [part for name, part in model.named_modules() if name.endswith("visual.embeddings.position_embedding")]
        return [module for module in original(model, *args) if not any(module is one for one in held)]

    fsdp_utils._select_fsdp2_wrap_targets = _select_fsdp2_wrap_targets  # type: ignore[attr-defined]


def text_flops(flops_counter: ModuleType) -> None:
    """Have verl count an update's operations by the language model's own config."""
    original = flops_counter.ESTIMATE_FUNC["glm4v"]

    @wraps(original)
    def estimate(config: Any, *args: Any) -> Any:
        return original(getattr(config, "text_config", config), *args)

    flops_counter.ESTIMATE_FUNC["glm4v"] = estimate
