"""Which wanted frames are decoded together: what several decoders can share without doing anything twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentic_video.video.index import VideoIndex

_KEYFRAME_COST = 3
"""Packets whose decoding takes as long as what a keyframe takes beyond another packet, and finding it."""

_PICTURE_COST = 2
"""Packets whose decoding takes as long as making a picture of a decoded frame."""


def keyframe_indices(index: VideoIndex) -> list[int]:
    """The frames that are decoded from their own packet alone, ascending."""
    own = index.key_ranks < index.ordinals.size
    own[own] = index.ordinals[index.key_ranks[own]] == index.keyframes[own]
    return [int(rank) for rank in np.unique(index.key_ranks[own])]


def decode_ranges(index: VideoIndex, wanted: Sequence[int]) -> list[tuple[list[int], int]]:
    """The wanted frames by the keyframe that decoding them begins at.

    Args:
        wanted: Frame indices, ascending and distinct.

    Returns:
        Frame indices and the number of packets from their keyframe to the last of them, in order of time.
    """
    ranges: list[tuple[list[int], int]] = []
    last = -1
    for number in wanted:
        ordinal = int(index.ordinals[number])
        place = int(np.searchsorted(index.keyframes, ordinal, side="right")) - 1
        while place > 0 and index.key_ranks[place] > number:
            place -= 1
        packets = ordinal - (int(index.keyframes[place]) if place >= 0 else 0) + 1
        if ranges and place == last:
            ranges[-1][0].append(number)
            ranges[-1] = ranges[-1][0], max(ranges[-1][1], packets)
        else:
            ranges.append(([number], packets))
        last = place
    return ranges


def shares(index: VideoIndex, wanted: Sequence[int], most: int, least: int) -> list[list[int]]:
    """Share the wanted frames out to decoders, each keyframe's to one of them, so that all take about as long.

    Args:
        wanted: Frame indices within the video, ascending and distinct.
        most: Most shares, at least 1.
        least: Work that makes another decoder worth its while, in packets to decode.

    Returns:
        The shares in order of time; one at least, none of them empty unless ``wanted`` is.
    """
    if most < 2 or len(wanted) < 2:
        return [list(wanted)]
    ranges = [
        (numbers, packets + _KEYFRAME_COST + _PICTURE_COST * len(numbers))
        for numbers, packets in decode_ranges(index, wanted)
    ]
    total = sum(cost for _, cost in ranges)
    count = max(1, min(most, len(ranges), total // max(1, least)))
    parts: list[list[int]] = [[]]
    done = 0
    for place, (numbers, cost) in enumerate(ranges):
        left = len(ranges) - place
        if parts[-1] and len(parts) < count and (done >= total * len(parts) / count or left <= count - len(parts)):
            parts.append([])
        parts[-1] += numbers
        done += cost
    return parts
