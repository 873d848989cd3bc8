"""``frame_select``: frames of a stretch of the video, as many and as large as the agent asks for.

EVA, section 3.1: the agent chooses the window, the number of frames and how far they are scaled down. The released
evaluation code brings a call down to a budget of visual tokens by showing fewer and smaller frames, not by refusing it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentic_video.tools.arguments import number, read_json_values
from agentic_video.tools.base import ToolError
from agentic_video.video.index import VideoInfo
from agentic_video.video.sampling import linspace_times
from agentic_video.video.sizes import PixelBudget, fit_size

NAME = "frame_select"
ARGUMENTS = ("start_time", "end_time", "nframes", "resize")
EmptyWindow = Literal["refuse", "whole_video"]
"""Treatment of a window that ends before it starts or lies outside the video."""
MAX_BLOCK_CHARS = 4_000
"""The JSON between two call tags is refused beyond this many characters: no legal one comes near it."""


@dataclass(frozen=True)
class SelectRequest:
    """A legal request: ``count`` frames from ``start`` to ``end`` (seconds), sides times ``resize``."""

    start: float
    end: float
    count: int
    resize: float


@dataclass(frozen=True)
class SelectLimits:
    """Limits of one call.

    Attributes:
        max_tokens: Visual tokens over which a call gets fewer and smaller frames.
        max_frames: Most frames.
        max_short_side: Pixels to which the shorter side is reduced, in a call that is over ``max_tokens``.
        max_resize: Most that sides are multiplied by.
        min_pixels: Least pixels of a frame.
        max_pixels: Most pixels of a frame.
        factor: Sides are multiples of this many pixels; one visual token is a square of this side.
    """

    max_tokens: int
    max_frames: int
    max_short_side: int
    max_resize: float
    min_pixels: int
    max_pixels: int
    factor: int

    def __post_init__(self) -> None:
        PixelBudget(self.min_pixels, self.max_pixels, self.factor)
        for name in ("max_frames", "max_short_side", "max_resize"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.max_tokens * self.factor**2 < self.min_pixels:
            raise ValueError(f"{self.max_tokens} tokens can't show one frame of {self.min_pixels} pixels")


@dataclass(frozen=True)
class Selection:
    """The frames of a call: at ``times`` (seconds) with ``size`` (width, height in pixels)."""

    times: tuple[float, ...]
    size: tuple[int, int]


def read_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Read one or several JSON objects between call tags: name ("unknown" for other tools) and known arguments."""
    calls: list[tuple[str, dict[str, Any]]] = []
    for value in read_json_values(text, MAX_BLOCK_CHARS):
        calls += [_call(item) for item in (value if isinstance(value, list) else [value])]
    if not calls:
        raise ToolError("the call is empty")
    return calls


def _call(value: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(value, dict):
        raise ToolError("the call is not a JSON object")
    name, arguments = value.get("tool"), value.get("arguments", value.get("parameters"))
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ToolError('a call needs "tool" and "arguments"')
    # What is kept is recorded: known names and numbers only, never text of the model's.
    known = {key: arguments[key] for key in ARGUMENTS if key in arguments}
    if not all(value is None or isinstance(value, int | float) for value in known.values()):
        raise ToolError("an argument must be a number")
    return NAME if name == NAME else "unknown", known


def check_select(arguments: Mapping[str, Any], info: VideoInfo, empty_window: EmptyWindow = "refuse") -> SelectRequest:
    """Check a request and clamp its window to the video.

    Args:
        arguments: ``start_time`` and ``end_time`` in seconds, ``nframes``, and ``resize``: the factor of both sides of
            a frame; 1, also when missing or null, is the original size.
        empty_window: ``whole_video``: a window that is empty within the video is the whole video, as in the released
            code. ``refuse``: it is illegal, but for one within the video that ends where it starts: one frame.

    Returns:
        The request, with no more frames than the video has within the window; at a variable rate see
        :func:`no_more_than`.
    """
    start, end = number(arguments.get("start_time"), "start_time"), number(arguments.get("end_time"), "end_time")
    count = number(arguments.get("nframes"), "nframes")
    resize = 1.0 if arguments.get("resize") is None else number(arguments.get("resize"), "resize")
    if empty_window == "whole_video":
        if min(end, info.duration) <= max(start, 0.0):
            start, end = 0.0, info.duration
    elif start > end:
        raise ToolError("start_time is after end_time")
    elif start >= info.duration or end < 0:
        raise ToolError(f"the window lies outside the video, which lasts {info.duration:.2f} seconds")
    if count < 1 or count != int(count):
        raise ToolError("nframes must be a whole number of at least 1")
    if resize <= 0:
        raise ToolError("resize must be above 0")
    start, end = max(start, 0.0), min(end, info.duration)
    there = info.num_frames
    if not info.variable_frame_rate:
        # the last frame may be shown for longer than the others
        first, last = info.place(start), min(info.place(end), info.num_frames)
        there = int(max(last - first, 0.0) + 1e-6) + 1
    return SelectRequest(start, end, min(int(count), there), resize)


def no_more_than(request: SelectRequest, first: float, last: float) -> SelectRequest:
    """A request with no more frames than lie between two positions of a video, ends included, but at least one."""
    there = max(1, math.floor(last) - math.ceil(first) + 1)
    return replace(request, count=min(request.count, there))


def plan_selection(request: SelectRequest, info: VideoInfo, limits: SelectLimits) -> Selection:
    """Select frames for a legal request under the limits.

    As in the released code, a request over the token budget is first reduced to ``max_short_side``; if that isn't
    enough, the number of frames and the scale are multiplied by (budget / estimate) ** (1/3) each, which brings
    frames * scale ** 2 into the budget. The estimate is of sides rounded to multiples of ``factor``; rounding the
    smaller sides once more may leave several frames a little over the budget.

    Returns:
        Times with both ends of the window included, a single one in its middle, and a size. A single frame is within
        the budget.
    """
    area = info.width * info.height
    least = math.sqrt(limits.min_pixels / area)
    most = max(least, min(limits.max_resize, math.sqrt(limits.max_pixels / area)))
    count, scale = min(request.count, limits.max_frames), min(max(request.resize, least), most)

    def estimate() -> int:
        return count * _tokens(_rounded_size(info, scale, limits.factor), limits.factor)

    if estimate() > limits.max_tokens:
        scale = max(least, min(scale, 1.0, limits.max_short_side / min(info.width, info.height)))
    if (tokens := estimate()) > limits.max_tokens:
        shrink = (limits.max_tokens / tokens) ** (1 / 3)
        count, scale = max(1, int(count * shrink)), max(least, scale * shrink)
    size = _rounded_size(info, scale, limits.factor)
    room = max(min(limits.max_pixels, limits.max_tokens * limits.factor**2), limits.factor**2)
    if not limits.min_pixels <= size[0] * size[1] <= room:
        # Rounding up keeps a long and narrow frame from becoming narrower than it is.
        budget = PixelBudget(limits.min_pixels, room, limits.factor)
        size = fit_size(math.ceil(info.width * scale), math.ceil(info.height * scale), budget)
    if scale == least or limits.factor in size:  # a size that can't become smaller leaves it all to their number
        count = min(count, max(1, limits.max_tokens // _tokens(size, limits.factor)))
    if count == 1:
        return Selection(((request.start + request.end) / 2,), size)
    return Selection(tuple(linspace_times(request.start, request.end, count)), size)


def _tokens(size: tuple[int, int], factor: int) -> int:
    return (size[0] // factor) * (size[1] // factor)


def _rounded_size(info: VideoInfo, scale: float, factor: int) -> tuple[int, int]:
    """(width, height) in pixels of a scaled picture: the nearest multiples of the factor, but at least one."""
    # Python's round, half to even, as in the released code.
    return max(1, round(info.width * scale / factor)) * factor, max(1, round(info.height * scale / factor)) * factor
