"""``uniform_sample``: evenly spaced frames of a stretch of the video (VideoBrain, section 3.1; released code for the
limits)."""

from collections.abc import Mapping
from typing import Any

from agentic_video.tools.base import ToolError
from agentic_video.video.sampling import FrameTimes, spread_indices


def read_range(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """The frame range as it was asked for, whatever the video's length (paper, appendix C.1).

    Args:
        arguments: ``start_frame`` and ``end_frame``, integers.

    Returns:
        (start, end), start before end.

    Raises:
        ToolError: They aren't integers in this order; the message says why.
    """
    start, end = arguments.get("start_frame"), arguments.get("end_frame")
    for name, value in (("start_frame", start), ("end_frame", end)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ToolError(f"{name} must be an integer")
    assert isinstance(start, int) and isinstance(end, int)
    if start >= end:
        raise ToolError("start_frame must be smaller than end_frame")
    return start, end


def frames_within(arguments: Mapping[str, Any], num_frames: int) -> range:
    """The frames of a range: ``end_frame`` excluded, an end beyond the video clipped (released code).

    Args:
        arguments: See :func:`read_range`.
        num_frames: Frames in the video.

    Raises:
        ToolError: The range is no range, or starts outside the video.
    """
    start, end = read_range(arguments)
    if not 0 <= start < num_frames:
        raise ToolError(f"start_frame must lie within the video, which has {num_frames} frames")
    return range(start, min(end, num_frames))


def spread(frames: range, count: int, frame_times: FrameTimes = "nearest") -> list[int]:
    """Evenly spaced frames of a range, first and last included; all of them when it has no more than ``count``."""
    return [frames.start + offset for offset in spread_indices(len(frames), count, frame_times)]


def check_uniform(
    arguments: Mapping[str, Any], num_frames: int, count: int, frame_times: FrameTimes = "nearest"
) -> list[int]:
    """Check a request and choose its frames.

    Args:
        arguments: ``start_frame`` and ``end_frame``.
        num_frames: Frames in the video.
        count: Frames of one call.
        frame_times: Whether their numbers are rounded, or cut to whole ones.

    Returns:
        Exactly ``count`` frame numbers in order.

    Raises:
        ToolError: The request is illegal; the message says why. A range of fewer than ``count`` frames is
            (released code).
    """
    frames = frames_within(arguments, num_frames)
    if len(frames) < count:
        raise ToolError(f"the range holds {len(frames)} frames, at least {count} are needed")
    return spread(frames, count, frame_times)
