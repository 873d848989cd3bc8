"""Which frames are decoded together."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentic_video.video.index import VideoIndex
from agentic_video.video.open import open_video
from agentic_video.video.ranges import decode_ranges, keyframe_indices, shares


@pytest.fixture
def index(video: Callable[[str], str]) -> VideoIndex:
    with open_video(video("h264_b_frames")) as reader:  # 60 frames, keyframes at 0, 12, 24, 36, 48
        return reader.index


def test_keyframes_of_a_file(index: VideoIndex) -> None:
    assert keyframe_indices(index) == [0, 12, 24, 36, 48]


def test_frames_by_keyframe_and_what_they_cost(index: VideoIndex) -> None:
    assert [numbers for numbers, _ in decode_ranges(index, [0, 12, 13, 47, 48])] == [[0], [12, 13], [47], [48]]
    costs = [packets for _, packets in decode_ranges(index, [0, 12, 47])]
    assert costs[:2] == [1, 1] and 9 <= costs[2] <= 12  # frame 47 is the last of its 12, B frames aside


def test_one_decoder_gets_everything(index: VideoIndex) -> None:
    assert shares(index, [0, 30, 59], 1, 1) == [[0, 30, 59]]
    assert shares(index, [0, 30, 59], 4, 1000) == [[0, 30, 59]]
    assert shares(index, [], 4, 1) == [[]]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(0, 59), min_size=1), st.integers(1, 6))
def test_shares_are_all_of_it_and_no_keyframe_is_in_two(index: VideoIndex, wanted: set[int], most: int) -> None:
    numbers = sorted(wanted)
    parts = shares(index, numbers, most, 1)
    assert [number for part in parts for number in part] == numbers and all(parts) and len(parts) <= most
    groups = [{number // 12 for number in part} for part in parts]
    assert all(not left & right for left, right in pairwise(groups))
    if most >= 2 and len({number // 12 for number in numbers}) >= 2:
        assert len(parts) >= 2


def test_pictures_and_keyframes_are_work_too(index: VideoIndex) -> None:
    keyframes = [0, 12, 24, 36]  # a packet each, but 1 + 3 + 2 of work
    assert shares(index, keyframes, 4, 13) == [keyframes]
    assert shares(index, keyframes, 4, 12) == [[0, 12], [24, 36]]
