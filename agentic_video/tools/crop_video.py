"""``crop_video``: frames of a stretch of the video at a fixed rate (LongVT, section 3; released code: limits)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agentic_video.tools.arguments import number
from agentic_video.tools.base import ToolError
from agentic_video.types.row import Interval

NAME = "crop_video"
ARGUMENTS = ("video_path", "start_time", "end_time")

PastEnd = Literal["refused", "clamped"]
"""Treatment of a crop whose end lies behind the video's: ``refused``, or ``clamped`` to the video."""

SCHEMA: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Shows a stretch of the video once more, frame by frame.",
        "parameters": {
            "type": "object",
            "properties": {
                "video_path": {"type": "string", "description": "The video, as it was named to you."},
                "start_time": {"type": "number", "description": "Where the stretch begins, in seconds."},
                "end_time": {"type": "number", "description": "Where it ends, in seconds; after start_time."},
            },
            "required": list(ARGUMENTS),
        },
    },
}
"""The tool as a function that chat templates and servers understand."""


@dataclass(frozen=True)
class CropRequest:
    """A legal request: ``count`` frames from ``start`` to ``end`` (seconds), both ends included."""

    start: float
    end: float
    count: int

    @property
    def interval(self) -> Interval:
        """Start and end in seconds."""
        return self.start, self.end


@dataclass(frozen=True)
class CropLimits:
    """Limits of one crop: frames a second, between a least and a most number of frames, and what an end past the
    video's does."""

    fps: float = 1.0
    min_frames: int = 1
    max_frames: int = 128
    past_end: PastEnd = "refused"

    def __post_init__(self) -> None:
        if not 0 < self.fps < float("inf"):
            raise ValueError(f"fps must be above 0, got {self.fps}")
        if not 1 <= self.min_frames <= self.max_frames:
            raise ValueError(f"min_frames must be from 1 to max_frames, got {self.min_frames} and {self.max_frames}")

    def count(self, seconds: float) -> int:
        """Number of frames of a crop of this length: ``int(seconds * fps)`` within the limits."""
        # Before it is made a whole number: a long video at a high rate has more frames than fit in one.
        return int(min(max(seconds * self.fps + 1e-6, self.min_frames), self.max_frames))


def check_crop(
    arguments: Mapping[str, Any], duration: float, limits: CropLimits, paths: Collection[str] = ()
) -> CropRequest:
    """Check ``start_time`` and ``end_time`` in seconds, and ``video_path`` where ``paths`` has the video's names.

    No file is ever opened by a path that a model wrote, and messages never repeat the model's text.
    """
    needed = ARGUMENTS if paths else ARGUMENTS[1:]
    for name in needed:
        if arguments.get(name) is None:
            raise ToolError(f"{NAME} needs {name}")
    if paths and arguments["video_path"] not in paths:
        raise ToolError("there is no video of this path: copy video_path as it was given")
    start, end = number(arguments["start_time"], "start_time"), number(arguments["end_time"], "end_time")
    if start < 0:
        raise ToolError("start_time is below 0")
    if end <= start:
        raise ToolError("end_time must be after start_time")
    if start >= duration:
        raise ToolError(f"start_time lies outside the video, which lasts {duration:.2f} seconds")
    if end > duration and limits.past_end == "refused":
        raise ToolError(f"end_time lies outside the video, which lasts {duration:.2f} seconds")
    end = min(end, duration)
    return CropRequest(start, end, limits.count(end - start))
