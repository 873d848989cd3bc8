"""``uniform_sample``: evenly spaced frames of a stretch of the video (VideoBrain, section 3.1; released code for the
limits)."""

from collections.abc import Mapping
from typing import Any

from agentic_video.tools.arguments import integer
from agentic_video.tools.base import ToolError
from agentic_video.video.sampling import FrameTimes, spread_indices


def read_range(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """Read ``start_frame`` and ``end_frame``, the end excluded, whatever the video's length (paper, appendix C.1)."""
    start, end = (integer(arguments.get(name), name) for name in ("start_frame", "end_frame"))
    if start >= end:
        raise ToolError("start_frame must be smaller than end_frame")
    return start, end


def frames_within(arguments: Mapping[str, Any], num_frames: int) -> range:
    """The frames of a range: ``end_frame`` excluded, an end beyond the video clipped (released code)."""
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
    """Check a request and choose exactly ``count`` frames; a shorter range is refused (released code)."""
    frames = frames_within(arguments, num_frames)
    if len(frames) < count:
        raise ToolError(f"the range holds {len(frames)} frames, at least {count} are needed")
    return spread(frames, count, frame_times)
