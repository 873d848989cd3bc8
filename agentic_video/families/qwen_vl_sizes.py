"""Sizes that processors of Qwen-VL's kind give to pictures: multiples of a visual token's side, within bounds.

The rules come from loaded processors (:func:`rules_of`), from the files of a checkpoint (:func:`rules_in`), or from a
published checkpoint's facts.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentic_video.families.base import ProcessorError, ProcessorRules
from agentic_video.families.files import image_values, read_values
from agentic_video.utils.errors import one_line
from agentic_video.video.sizes import PixelBudget, fit_size

TIMESTAMPED = ("Qwen3VLVideoProcessor", "Glm4vVideoProcessor", "Glm46VVideoProcessor")
"""The video processors that bound the pixels of all frames of a clip together; their processors write times as text."""
MOST_DUMMY_FRAMES = 14
"""Frames of a video with which vLLM measures Qwen2-VL and Qwen2.5-VL (``_MAX_FRAMES_PER_VIDEO`` in its
qwen2_vl.py)."""


@dataclass(frozen=True)
class GridRules(ProcessorRules):
    """Sizes that processors of this kind keep."""

    image: PixelBudget
    clip: PixelBudget | None = None
    """Bounds of a clip; None for a model without clips."""
    clip_total: bool = False
    """``clip`` bounds the pixels of all frames of a clip together, rather than of each."""
    temporal: int = 2
    """Frames of a clip that become one patch."""
    merge: int = 2
    """Patches along a side of a visual token."""

    @property
    def takes_clips(self) -> bool:  # type: ignore[override]
        return self.clip is not None

    @property
    def side(self) -> int:
        return self.image.factor

    def resized(self, width: int, height: int, frames: int = 0) -> tuple[int, int]:
        if not frames:
            return fit_size(width, height, self.image)
        if self.clip is None:
            raise ProcessorError("this model has no video processor, so it can't be shown clips")
        if not self.clip_total:
            return fit_size(width, height, self.clip)
        # The bounds hold for padded frames, the scale is that of the real ones.
        padded = math.ceil(frames / self.temporal) * self.temporal
        return fit_size(width, height, self.clip, frames, padded)

    def kept(self, width: int, height: int, frames: int = 0) -> tuple[int, int]:
        if frames and self.clip_total:  # transformers refuses frames of clips whose sides are below a visual token's
            width, height = max(width, self.side), max(height, self.side)
        return super().kept(width, height, frames)

    def grid(self, width: int, height: int, frames: int = 0) -> tuple[int, int, int]:
        """Patches of an image or a clip: time, height, width."""
        new_width, new_height = self.resized(width, height, frames)
        patch = self.side // self.merge
        return math.ceil(max(frames, 1) / self.temporal), new_height // patch, new_width // patch

    def tokens(self, width: int, height: int, frames: int = 0) -> int:
        return math.prod(self.grid(width, height, frames)) // self.merge**2

    @property
    def most_image_tokens(self) -> int:
        return self.image.max_pixels // self.side**2

    def most_clip_tokens(self, model_len: int) -> int:
        """See the base; a video of a few largest images, or two frames with all pixels of a clip."""
        if self.clip is None:
            return 0
        if self.clip_total:
            return self.clip.max_pixels // self.temporal // self.side**2
        image = self.most_image_tokens
        return image * min(max(1, model_len // max(1, image)), math.ceil(MOST_DUMMY_FRAMES / self.temporal))


def rules_of(processor: Any) -> GridRules:
    """Rules of a loaded processor, which holds one for images and may hold one for clips."""
    clip = getattr(processor, "video_processor", None)
    facts = _facts(clip) if clip is not None else None
    return _rules(_facts(processor.image_processor), facts, total=type(clip).__name__.startswith(TIMESTAMPED))


@dataclass(frozen=True)
class ProcessorFacts:
    """What a processor's file says."""

    least: int
    most: int
    patch: int
    merge: int
    temporal: int


IMAGE_DEFAULTS = ProcessorFacts(56 * 56, 28 * 28 * 1280, 14, 2, 2)
CLIP_DEFAULTS = {
    False: ProcessorFacts(128 * 28 * 28, 28 * 28 * 768, 14, 2, 2),
    True: ProcessorFacts(128 * 32 * 32, 32 * 32 * 768, 16, 2, 2),
}
"""Defaults of transformers' classes; True: a clip's bounds are those of all its frames."""


def rules_in(
    folder: Path,
    *,
    timestamped: bool,
    image_defaults: ProcessorFacts = IMAGE_DEFAULTS,
    clip_defaults: ProcessorFacts | None = None,
    own_pixels: bool = True,
) -> GridRules:
    """Rules in a checkpoint's files; see :meth:`agentic_video.families.base.ModelFamily.rules_in`.

    Args:
        timestamped: Said of a family's clips where the files name no class.
        image_defaults: What holds where a file says nothing.
        clip_defaults: The same of clips; None: that of Qwen's class.
        own_pixels: Files may have ``min_pixels`` and ``max_pixels``.
    """
    nested, image = image_values(folder)
    plain = read_values(folder / "preprocessor_config.json")
    video = nested.get("video_processor") or read_values(folder / "video_preprocessor_config.json") or plain
    kind = video.get("video_processor_type") or str(video.get("image_processor_type", "")).replace("Image", "Video")
    total = kind.startswith(TIMESTAMPED) if kind else timestamped
    try:
        image_facts = _file_facts(image, image_defaults, own_pixels=own_pixels)
        clip_facts = _file_facts(video, clip_defaults or CLIP_DEFAULTS[total], own_pixels=own_pixels and not total)
    except ProcessorError:
        raise
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ProcessorError(f"the processor's file can't be read: {one_line(error)}") from error
    return _rules(image_facts, clip_facts, total=total)


def _facts(processor: Any) -> ProcessorFacts:
    try:
        size = processor.size
        return ProcessorFacts(
            int(size.shortest_edge),
            int(size.longest_edge),
            int(processor.patch_size),
            int(processor.merge_size),
            int(processor.temporal_patch_size),
        )
    except (AttributeError, TypeError) as error:
        raise ProcessorError(
            f"no rule for the sizes of a {type(processor).__name__}: {one_line(error)}; it has no shortest and "
            "longest edge, patch, merge and temporal size"
        ) from error


def _file_facts(values: Mapping[str, Any], default: ProcessorFacts, *, own_pixels: bool) -> ProcessorFacts:
    """Facts in a processor's file; ``own_pixels``: it may have ``min_pixels`` and ``max_pixels``."""
    size = values.get("size")
    size = {"shortest_edge": default.least, "longest_edge": default.most} if size is None else dict(size)
    if own_pixels:
        for old, new in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
            if values.get(old) is not None:
                size[new] = values[old]
    if not size.get("shortest_edge") or not size.get("longest_edge"):
        raise ProcessorError("the processor's size has no shortest_edge and longest_edge (pixels)")
    return ProcessorFacts(
        int(size["shortest_edge"]),
        int(size["longest_edge"]),
        int(values.get("patch_size", default.patch)),
        int(values.get("merge_size", default.merge)),
        int(values.get("temporal_patch_size", default.temporal)),
    )


def _rules(image: ProcessorFacts, clip: ProcessorFacts | None, *, total: bool) -> GridRules:
    try:
        budgets = [
            PixelBudget(facts.least, facts.most, facts.patch * facts.merge)
            for facts in (image, clip)
            if facts is not None
        ]
    except ValueError as error:
        raise ProcessorError(f"the processor's bounds hold for no picture: {one_line(error)}") from error
    if clip is not None and budgets[0].factor != budgets[1].factor:
        raise ProcessorError(
            f"the image processor's sides are multiples of {budgets[0].factor} pixels, the video processor's of "
            f"{budgets[1].factor}"
        )
    temporal = clip.temporal if clip is not None else image.temporal
    return GridRules(budgets[0], budgets[1] if clip is not None else None, total, temporal, image.merge)
