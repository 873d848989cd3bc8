"""Which frames to look at: pure functions from counts, rates and times to frame indices or times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

MAX_SAMPLES = 10_000_000
"""More samples than any video needs: a request beyond it is a mistake (a rate in place of a count, say)."""
MAX_COUNT = MAX_SAMPLES * 10
"""The same of frames that are asked for by their number."""

FrameTimes = Literal["nearest", "released"]
"""What becomes of a place between two frames. ``nearest``: the closest frame. ``released``: frame numbers cut to whole
ones, at the video's average rate, as the released code of VideoZoomer, FrameThinker and VideoBrain counts them."""


def uniform_indices(num_frames: int, count: int) -> list[int]:
    """Spread ``count`` indices evenly over a video, the first and the last frame included.

    Args:
        num_frames: Frames in the video, at least 1.
        count: Frames wanted, at least 1.

    Returns:
        ``np.linspace(0, num_frames - 1, count)`` rounded (one index: frame 0), strictly increasing; every frame once
        when the video has no more than ``count``.

    Raises:
        ValueError: On a count that is not positive or is absurd.
    """
    return spread_indices(num_frames, count, "nearest")


def floored_indices(num_frames: int, count: int) -> list[int]:
    """:func:`uniform_indices` cut to whole numbers in place of rounded (released code of all three systems).

    Args:
        num_frames: Frames in the video, at least 1.
        count: Frames wanted, at least 1.

    Raises:
        ValueError: On a count that is not positive or is absurd.
    """
    return spread_indices(num_frames, count, "released")


def spread_indices(num_frames: int, count: int, frame_times: FrameTimes) -> list[int]:
    """:func:`uniform_indices` for ``nearest``, :func:`floored_indices` for ``released``."""
    _check_count("num_frames", num_frames)
    _check_count("count", count)
    if num_frames <= count:
        return list(range(num_frames))
    places = np.linspace(0, num_frames - 1, count)
    return [int(index) for index in (places if frame_times == "released" else np.round(places))]


def stepped_indices(num_frames: int, video_fps: float, fps: float) -> range:
    """Every n-th frame, for about ``fps`` frames a second (VideoZoomer's released overview).

    Args:
        num_frames: Frames in the video.
        video_fps: Its average frames a second.
        fps: Frames wanted a second, positive.

    Returns:
        0, n, 2 * n ... below ``num_frames``; n is ``round(video_fps / fps)``, at least 1. At 29.97 frames a second and
        0.5 wanted that is 60 frames, which take 2.002 s.

    Raises:
        ValueError: On a rate that is not finite or not positive.
    """
    _check_finite("fps", fps)
    if fps <= 0:
        raise ValueError(f"fps must be positive, got {fps}")
    return range(0, num_frames, max(1, round(min(video_fps / fps, num_frames))))


def floored_span(start: float, end: float, count: int, video_fps: float, num_frames: int) -> list[int]:
    """Frame numbers of a stretch given in seconds (VideoZoomer's released zoom).

    Args:
        start: Seconds, not negative.
        end: Seconds, not before ``start``.
        count: Frames wanted, at least 1; a single one is the start.
        video_fps: Average frames a second.
        num_frames: Frames in the video; an end beyond the last is the last.

    Returns:
        ``linspace(int(start * video_fps), int(end * video_fps), count)`` cut to whole numbers, not decreasing. Where
        the rate varies these aren't the frames shown at those times. A product that should be whole isn't cut one too
        low by a rounding error.

    Raises:
        ValueError: On values that are not finite, negative or in the wrong order, or an absurd count.
    """
    _check_span(start, end, count)
    first, last = (min(int(seconds * video_fps + 1e-6), num_frames - 1) for seconds in (start, end))
    return [int(index) for index in np.linspace(first, last, count)]


def rate_times(duration: float, fps: float) -> list[float]:
    """The times at a fixed rate: 0, 1/fps, 2/fps ... below the duration.

    Args:
        duration: Seconds, not negative.
        fps: Frames per second, positive.

    Returns:
        Times in seconds; empty when the duration is 0.

    Raises:
        ValueError: On values that are not finite, a negative duration, a rate that is not positive, or more than
            ``MAX_SAMPLES`` times.
    """
    _check_time("duration", duration)
    _check_finite("fps", fps)
    if fps <= 0:
        raise ValueError(f"fps must be positive, got {fps}")
    if duration * fps > MAX_SAMPLES:
        raise ValueError(f"duration {duration} s at {fps} fps gives more than {MAX_SAMPLES} times")
    # The product may round up past the last time below the duration, so compare the times themselves.
    return [time for time in (index / fps for index in range(math.ceil(duration * fps) + 1)) if time < duration]


def linspace_times(start: float, end: float, count: int) -> list[float]:
    """Spread ``count`` times evenly from start to end, both included.

    Args:
        start: Seconds, not negative.
        end: Seconds, not before ``start``.
        count: Times wanted, at least 1; a single one is the start.

    Returns:
        Times in seconds, not decreasing.

    Raises:
        ValueError: On values that are not finite, negative or in the wrong order, or an absurd count.
    """
    _check_span(start, end, count)
    return [float(time) for time in np.linspace(start, end, count)]


def nearest_indices(timestamps: npt.ArrayLike, times: Sequence[float]) -> list[int]:
    """Find for each time the frame presented closest to it; of two equally close ones the earlier.

    Args:
        timestamps: Presentation times of all frames in seconds, shape (num_frames,), not decreasing.
        times: Wanted times in seconds, not negative; beyond the last frame they give the last frame.

    Returns:
        One frame index per time, in the order asked.

    Raises:
        ValueError: When there are no timestamps, they are not sorted, or a value is not finite or negative.
    """
    stamps = np.asarray(timestamps, dtype=np.float64)
    if stamps.ndim != 1 or stamps.size == 0:
        raise ValueError(f"timestamps must be a non-empty one-dimensional array, got shape {stamps.shape}")
    if not np.isfinite(stamps).all():
        raise ValueError("timestamps must be finite")
    if (np.diff(stamps) < 0).any():
        raise ValueError("timestamps must be sorted")
    for time in times:
        _check_time("time", time)
    wanted = np.asarray(times, dtype=np.float64)
    after = np.searchsorted(stamps, wanted, side="left").clip(0, stamps.size - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(wanted - stamps[before]) <= np.abs(stamps[after] - wanted), before, after)
    # Of frames that share one time, the first.
    return [int(index) for index in np.searchsorted(stamps, stamps[nearest], side="left")]


def snapped_indices(anchors: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Move wanted frames to frames that are cheaper to have, none of them twice.

    Args:
        anchors: The frames that are cheap, ascending and distinct.
        wanted: Frames to be shown, ascending and distinct.

    Returns:
        As many frames, ascending: each wanted one's closest anchor as far as they are distinct (of two equally close
        ones the earlier); otherwise anchors that keep the order of time, so that the sum of the moves is the least.
        ``wanted`` itself where there are fewer anchors than wanted frames.
    """
    if len(anchors) < len(wanted) or not wanted:
        return list(wanted)
    cheap, asked = np.asarray(anchors, dtype=np.int64), np.asarray(wanted, dtype=np.int64)
    after = np.searchsorted(cheap, asked).clip(0, cheap.size - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(asked - cheap[before]) <= np.abs(cheap[after] - asked), before, after)
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
    place = cheap.size - 1
    for row in reversed(range(asked.size)):
        while not taken[row, place]:
            place -= 1
        chosen.append(int(cheap[place]))
        place -= 1
    return chosen[::-1]


def _check_finite(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")


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
    if int(value) != value:
        raise ValueError(f"{name} must be a whole number, got {value}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    if value > MAX_COUNT:
        raise ValueError(f"{name} must be at most {MAX_COUNT}, got {value}")
