"""Frame sampling: pure functions from counts, rates and times to frame indices or times.

Counts, rates and times are checked here and raise ValueError: systems pass on what a model or a config asks for.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

MAX_SAMPLES = 10_000_000
"""Most times at a rate: a larger request is a mistake (a rate instead of a count, say)."""
MAX_COUNT = MAX_SAMPLES * 10
"""Most frames by number."""

FrameTimes = Literal["nearest", "released"]
"""Rounding of a position between two frames. ``nearest``: to the closest frame. ``released``: down, at the video's
average rate, as the released code of VideoZoomer, FrameThinker and VideoBrain counts frames."""


def uniform_indices(num_frames: int, count: int) -> list[int]:
    """Spread ``count`` indices evenly over a video, the first and the last frame included.

    Returns:
        ``np.linspace(0, num_frames - 1, count)`` rounded (one index: frame 0), strictly increasing; every frame once
        if the video has no more than ``count``.
    """
    return spread_indices(num_frames, count, "nearest")


def floored_indices(num_frames: int, count: int) -> list[int]:
    """:func:`uniform_indices` rounded down (released code of all three systems)."""
    return spread_indices(num_frames, count, "released")


def spread_indices(num_frames: int, count: int, frame_times: FrameTimes) -> list[int]:
    """:func:`uniform_indices` for ``nearest``, :func:`floored_indices` for ``released``."""
    _check_count("num_frames", num_frames)
    _check_count("count", count)
    if num_frames <= count:
        return list(range(num_frames))
    positions = np.linspace(0, num_frames - 1, count)
    return [int(index) for index in (positions if frame_times == "released" else np.round(positions))]


def stepped_indices(num_frames: int, video_fps: float, fps: float) -> range:
    """Every n-th frame, for about ``fps`` frames a second (VideoZoomer's released overview).

    Returns:
        0, n, 2 * n ... below ``num_frames``; n is ``round(video_fps / fps)``, at least 1. At 29.97 frames a second and
        0.5 wanted that is 60 frames, which take 2.002 s.
    """
    _check_rate(fps)
    return range(0, num_frames, max(1, round(min(video_fps / fps, num_frames))))


def floored_span(start: float, end: float, count: int, video_fps: float, num_frames: int) -> list[int]:
    """Frame numbers of a stretch in seconds (VideoZoomer's released zoom); an end beyond the last frame is the last.

    Returns:
        ``linspace(int(start * video_fps), int(end * video_fps), count)`` rounded down, not decreasing; a single one is
        the start. Where the rate varies these aren't the frames shown at those times. A product that should be whole
        isn't rounded one too low by a floating-point error.
    """
    _check_span(start, end, count)
    first, last = (min(int(seconds * video_fps + 1e-6), num_frames - 1) for seconds in (start, end))
    return [int(index) for index in np.linspace(first, last, count)]


def rate_times(duration: float, fps: float) -> list[float]:
    """Times at a fixed rate in seconds: 0, 1/fps, 2/fps ... below the duration; at most ``MAX_SAMPLES``."""
    _check_time("duration", duration)
    _check_rate(fps)
    if duration * fps > MAX_SAMPLES:
        raise ValueError(f"duration {duration} s at {fps} fps gives more than {MAX_SAMPLES} times")
    # The product may round up past the last time below the duration, so compare the times themselves.
    return [time for time in (index / fps for index in range(math.ceil(duration * fps) + 1)) if time < duration]


def linspace_times(start: float, end: float, count: int) -> list[float]:
    """Spread ``count`` times (seconds) evenly from start to end, both included; a single one is the start."""
    _check_span(start, end, count)
    return [float(time) for time in np.linspace(start, end, count)]


def nearest_indices(timestamps: npt.ArrayLike, times: Sequence[float]) -> list[int]:
    """Find for each time the frame presented closest to it; of two equally close ones the earlier.

    Args:
        timestamps: Presentation times of all frames in seconds, shape (num_frames,), not decreasing.
        times: Seconds, not negative; beyond the last frame they give the last frame.

    Returns:
        One frame index per time, in the same order.
    """
    stamps = np.asarray(timestamps, dtype=np.float64)
    if stamps.ndim != 1 or stamps.size == 0 or not np.isfinite(stamps).all() or (np.diff(stamps) < 0).any():
        raise ValueError(f"timestamps must be finite and sorted, and at least one; got shape {stamps.shape}")
    for time in times:
        _check_time("time", time)
    wanted = np.asarray(times, dtype=np.float64)
    nearest = _nearest(stamps, wanted)
    # Of frames that share one time, the first.
    return [int(index) for index in np.searchsorted(stamps, stamps[nearest], side="left")]


def _nearest(sorted_values: np.ndarray, wanted: np.ndarray) -> npt.NDArray[np.intp]:
    """Position of the value nearest to each wanted one; of two equally close ones the earlier."""
    after = np.searchsorted(sorted_values, wanted, side="left").clip(0, sorted_values.size - 1)
    before = np.maximum(after - 1, 0)
    closer_before = np.abs(wanted - sorted_values[before]) <= np.abs(sorted_values[after] - wanted)
    return np.where(closer_before, before, after)


def snapped_indices(anchors: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Move wanted frames to anchors, frames that are cheaper to decode, none of them twice.

    Args:
        anchors: Frames, ascending and distinct.
        wanted: Frames, ascending and distinct.

    Returns:
        As many frames, ascending: each wanted one's closest anchor as far as they are distinct (of two equally close
        ones the earlier); otherwise anchors in the order of time with the least sum of moves. ``wanted`` itself if
        there are fewer anchors than wanted frames.
    """
    if len(anchors) < len(wanted) or not wanted:
        return list(wanted)
    cheap, asked = np.asarray(anchors, dtype=np.int64), np.asarray(wanted, dtype=np.int64)
    nearest = _nearest(cheap, asked)
    if (np.diff(nearest) > 0).all():
        return [int(index) for index in cheap[nearest]]
    # least[j]: the least sum of moves of the wanted frames so far with the last of them on an anchor up to j.
    moves = np.abs(asked[:, None] - cheap[None, :]).astype(np.float64)
    least, taken = np.zeros(cheap.size), np.zeros(moves.shape, dtype=bool)
    for row, move in enumerate(moves):
        here = move + (np.concatenate(([np.inf], least[:-1])) if row else 0.0)
        least = np.minimum.accumulate(here)
        taken[row] = np.concatenate(([True], here[1:] < least[:-1]))
    chosen: list[int] = []
    position = cheap.size - 1
    for row in reversed(range(asked.size)):
        while not taken[row, position]:
            position -= 1
        chosen.append(int(cheap[position]))
        position -= 1
    return chosen[::-1]


def _check_finite(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")


def _check_rate(fps: float) -> None:
    _check_finite("fps", fps)
    if fps <= 0:
        raise ValueError(f"fps must be positive, got {fps}")


def _check_span(start: float, end: float, count: int) -> None:
    _check_time("start", start)
    _check_time("end", end)
    _check_count("count", count)
    if end < start:
        raise ValueError(f"end ({end}) must not be before start ({start})")


def _check_time(name: str, value: float) -> None:
    _check_finite(name, value)
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")


def _check_count(name: str, value: int) -> None:
    _check_finite(name, value)
    if int(value) != value or not 1 <= value <= MAX_COUNT:
        raise ValueError(f"{name} must be a whole number from 1 to {MAX_COUNT}, got {value}")
