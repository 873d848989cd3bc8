"""Frames of a video that can't be decoded: how many there are, and what is shown in their place."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from agentic_video.video.errors import VideoError
from agentic_video.video.index import VideoIndex, VideoInfo
from agentic_video.video.reader import VideoReader

REPLACE_WITHIN = 10.0
"""Seconds between a damaged frame and the readable one that is shown in its place, at most."""

DAMAGED_SHARE = 0.5
"""Share of a video's frames that may be damaged before the video is refused."""

_FIRST_LOOK, _GROWTH = 16, 4
_MOST_RUNS = 8


def find_damaged(reader: VideoReader, time_limit: float | None = None) -> list[int]:
    """Decode a whole video and list the frames that can't be decoded, ascending.

    Raises:
        VideoError: ``timeout``, or the machine's.
    """
    frames = reader.attempt(range(reader.info.num_frames), time_limit)
    return sorted(index for index, developer in frames if isinstance(developer, VideoError))


def nearest_readable(
    reader: VideoReader, number: int, within: float, known: Collection[int], time_limit: float | None
) -> tuple[int | None, list[int]]:
    """Find the readable frame that is shown closest to a damaged one; of two equally close ones the earlier.

    Args:
        reader: The open video.
        number: The damaged frame.
        within: Seconds that the readable one may be away.
        known: Frames that are known to be damaged.
        time_limit: Seconds that each look may take; None for no limit.

    Returns:
        The readable frame, None where there is none so close, and frames that turned out to be damaged.

    Raises:
        VideoError: ``timeout``, or the machine's.
    """
    order = [index for index in _outwards(reader.index, number, within) if index not in known]
    damaged: list[int] = []
    start, count = 0, _FIRST_LOOK
    while start < len(order):
        look = order[start : start + count]
        readable = set()
        for index, developer in reader.attempt(look, time_limit):
            if isinstance(developer, VideoError):
                damaged.append(index)
            else:
                readable.add(index)
        closest = next((index for index in look if index in readable), None)
        if closest is not None:
            return closest, damaged
        start, count = start + count, count * _GROWTH
    return None, damaged


def _outwards(index: VideoIndex, number: int, within: float) -> list[int]:
    """The frames around one that are shown within some seconds of it, the closest first."""
    times = index.timestamps
    first = int(np.searchsorted(times, times[number] - within, side="left"))
    end = int(np.searchsorted(times, times[number] + within, side="right"))
    around = np.delete(np.arange(first, end), number - first)
    away = np.round(np.abs(times[around] - times[number]), 9)
    return [int(place) for place in around[np.argsort(away, kind="stable")]]


def too_damaged(path: str, damaged: Collection[int], num_frames: int, share: float) -> VideoError | None:
    """The error of a video with more damaged frames than may be."""
    if len(damaged) <= share * num_frames:
        return None
    return VideoError(
        path,
        "corrupt",
        f"{len(damaged)} of {num_frames} frames ({runs(damaged)}) can't be decoded, more than "
        f"frame_store.damaged_share={share:g}; replace or re-encode the file, or raise the key",
    )


def too_short(info: VideoInfo, share: float) -> VideoError | None:
    """The error of a file that is cut off and lacks more of what its header promises than may be."""
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
    """Frame numbers as people write them: ``3, 20-39``; the first few stretches only."""
    stretches: list[list[int]] = []
    for number in sorted(numbers):
        if stretches and number == stretches[-1][1] + 1:
            stretches[-1][1] = number
        else:
            stretches.append([number, number])
    words = [f"{first}-{last}" if last > first else f"{first}" for first, last in stretches[:_MOST_RUNS]]
    return ", ".join(words + ["..."] * (len(stretches) > _MOST_RUNS))
