"""Damaged frames of a video: how many there are, and their replacements."""

from collections.abc import Collection, Iterable

import numpy as np

from agentic_video.video.errors import VideoError
from agentic_video.video.index import VideoIndex, VideoInfo
from agentic_video.video.reader import VideoReader

REPLACE_WITHIN = 10.0
"""Most seconds between a damaged frame and the readable one that replaces it."""

DAMAGED_SHARE = 0.5
"""Share of a video's frames that may be damaged before the video is refused."""

_FIRST_LOOK, _GROWTH = 16, 4
_MOST_RUNS = 8


def find_damaged(reader: VideoReader, time_limit: float | None = None) -> list[int]:
    """Decode a whole video and list the frames that can't be decoded, ascending."""
    frames = reader.iter_decoded(range(reader.info.num_frames), time_limit)
    return sorted(index for index, convert in frames if isinstance(convert, VideoError))


def nearest_readable(
    reader: VideoReader, number: int, within: float, known: Collection[int], time_limit: float | None
) -> tuple[int | None, list[int]]:
    """Find the readable frame closest in time to a damaged one, the earlier of two equally close ones.

    Args:
        reader: The open video.
        number: The damaged frame.
        within: Most seconds between the two.
        known: Frames known to be damaged.
        time_limit: Seconds for each of a few growing searches; None for no limit.

    Returns:
        The readable frame or None, and frames found to be damaged.
    """
    order = [index for index in _outwards(reader.index, number, within) if index not in known]
    damaged: list[int] = []
    start, count = 0, _FIRST_LOOK
    while start < len(order):
        look = order[start : start + count]
        readable = set()
        for index, convert in reader.iter_decoded(look, time_limit):
            if isinstance(convert, VideoError):
                damaged.append(index)
            else:
                readable.add(index)
        closest = next((index for index in look if index in readable), None)
        if closest is not None:
            return closest, damaged
        start, count = start + count, count * _GROWTH
    return None, damaged


def _outwards(index: VideoIndex, number: int, within: float) -> list[int]:
    """Frames within some seconds of a frame, the closest first."""
    times = index.timestamps
    first = int(np.searchsorted(times, times[number] - within, side="left"))
    end = int(np.searchsorted(times, times[number] + within, side="right"))
    around = np.delete(np.arange(first, end), number - first)
    away = np.round(np.abs(times[around] - times[number]), 9)
    return [int(other) for other in around[np.argsort(away, kind="stable")]]


def too_damaged(path: str, damaged: Collection[int], num_frames: int, share: float) -> VideoError | None:
    """Error of a video with too many damaged frames; None if there are few enough."""
    if len(damaged) <= share * num_frames:
        return None
    return VideoError(
        path,
        "corrupt",
        f"{len(damaged)} of {num_frames} frames ({runs(damaged)}) can't be decoded, more than "
        f"frame_store.damaged_share={share:g}; replace or re-encode the file, or raise the key",
    )


def too_short(info: VideoInfo, share: float) -> VideoError | None:
    """Error of a cut-off file that lacks too much of what its header promises; None if it lacks little."""
    promised = info.shown_seconds + info.missing_seconds
    if info.missing_seconds <= share * promised:
        return None
    return VideoError(
        info.path,
        "truncated",
        f"the file ends after {info.shown_seconds:.1f} of {promised:.1f} s, which is less than "
        f"frame_store.damaged_share={share:g} allows; copy it again, or raise the key",
    )


def runs(numbers: Iterable[int]) -> str:
    """Frame numbers as ranges, the first few only: ``3, 20-39``."""
    stretches: list[list[int]] = []
    for number in sorted(numbers):
        if stretches and number == stretches[-1][1] + 1:
            stretches[-1][1] = number
        else:
            stretches.append([number, number])
    words = [f"{first}-{last}" if last > first else f"{first}" for first, last in stretches[:_MOST_RUNS]]
    return ", ".join(words + ["..."] * (len(stretches) > _MOST_RUNS))
