"""Frames as images or as clips, with labels: the key ``frames_as`` of the packaged systems."""

from collections.abc import Callable, Sequence
from typing import Literal

from agentic_video.systems.base import System
from agentic_video.types.frame import Clip, Frame
from agentic_video.types.message import Part

FramesAs = Literal["images", "video"]
"""``images``: each frame by itself. ``video``: evenly spaced frames as one clip, which costs half the tokens."""

OverviewKind = Literal["uniform", "rate", "keyframes", "listed", "retrieval", "none"]
"""``uniform``: evenly spaced. ``rate``: so many a second, or uniform when that is too many. ``keyframes``: keyframes
close to evenly spaced ones, which are decoded many times faster. ``listed``: the times in the row's
``extra_info.overview_times``, from an external frame selector (VideoZoomer, Table 4). ``retrieval``: the frames that
match the question best. ``none``: no frames."""


def overview_as(frames_as: FramesAs, overview: OverviewKind) -> FramesAs:
    """The form of an overview: frames that aren't evenly spaced stay images, as a clip implies even spacing."""
    return frames_as if overview in ("uniform", "rate") else "images"


def one_clip(frames_as: FramesAs, frames: Sequence[Frame]) -> Clip | None:
    """Frames as one clip; None for ``images`` and for a single frame."""
    return Clip(tuple(frames)) if frames_as == "video" and len(frames) > 1 else None


def with_labels(
    frames: Sequence[Frame],
    frames_as: FramesAs,
    label: Callable[[int, Frame], str],
    clip_label: Callable[[Frame, Frame], str] | None = None,
) -> tuple[Part, ...]:
    """Each image after its label, or one clip after the label of its first and its last frame.

    Args:
        label: From a frame's number among ``frames`` and the frame.
        clip_label: None shows a clip without a label.
    """
    if clip := one_clip(frames_as, frames):
        return (clip_label(frames[0], frames[-1]), clip) if clip_label else (clip,)
    return tuple(part for number, frame in enumerate(frames) for part in (label(number, frame), frame))


def shows_clips(system: System) -> bool:
    """Return True if a system's episodes may hold clips."""
    return getattr(system, "frames_as", "images") == "video"
