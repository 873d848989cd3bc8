"""Frames as images or as clips: every system has it as its key ``frames_as``."""

from collections.abc import Sequence
from typing import Literal, get_args

from agentic_video.systems.base import OverviewKind, System
from agentic_video.types.frame import Clip, Frame
from agentic_video.utils.choices import check_choice

FramesAs = Literal["images", "video"]
"""``images``: each frame by itself. ``video``: evenly spaced frames as one clip, which costs half the tokens."""


def check_frames_as(frames_as: str) -> None:
    """Refuse an unknown word.

    Raises:
        ValueError: It isn't one of :data:`FramesAs`.
    """
    check_choice("frames_as", frames_as, get_args(FramesAs))


def overview_as(frames_as: FramesAs, overview: OverviewKind) -> FramesAs:
    """How an overview is shown: frames that aren't evenly spaced stay images, as a clip's are taken to be."""
    return frames_as if overview in ("uniform", "rate") else "images"


def one_clip(frames_as: FramesAs, frames: Sequence[Frame]) -> Clip | None:
    """Frames as one clip; None where they are shown as images, as a single frame always is."""
    return Clip(tuple(frames)) if frames_as == "video" and len(frames) > 1 else None


def shows_clips(system: System) -> bool:
    """Whether a system's episodes may hold clips."""
    return getattr(system, "frames_as", "images") == "video"
