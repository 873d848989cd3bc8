"""Opening and reading, whichever backend decodes."""

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentic_video.video.errors import VideoError
from agentic_video.video.index import VideoIndex
from agentic_video.video.open import Backend, open_video
from tests.video.video_files import number_in, reason_of

Video = Callable[[str], str]


def test_files_that_are_no_videos(tmp_path: Path) -> None:
    assert reason_of(tmp_path / "none.mp4") == "missing"
    assert reason_of(tmp_path) == "unsupported"
    empty, garbage, headless = tmp_path / "empty.mp4", tmp_path / "garbage.mp4", tmp_path / "headless.mp4"
    empty.touch()
    garbage.write_bytes(bytes(random.Random(0).randbytes(20_000)))
    headless.write_bytes(b"\0" * 5000)
    assert reason_of(empty) == "empty"
    assert reason_of(garbage) == "corrupt"
    assert reason_of(headless) == "corrupt"
    assert reason_of(empty / "inside.mp4") == "missing"


def test_an_index_saves_demuxing(video: Video, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_video(video("hevc")) as reader:
        index = reader.index
    monkeypatch.setattr("agentic_video.video.open.build_index", None)
    with open_video(video("hevc"), index=index) as reader:
        assert number_in(reader.read([33])[0]) == 33
    assert index.nbytes > 60 * 8


def test_time_limits(video: Video) -> None:
    with pytest.raises(VideoError) as caught:
        open_video(video("h264_long_gop"), time_limit=1e-6)
    assert caught.value.reason == "timeout"
    with open_video(video("h264_long_gop")) as reader:
        with pytest.raises(VideoError) as caught:
            list(reader.iter_decoded([100], 1e-6))
        assert caught.value.reason == "timeout"
        assert number_in(reader.read([100])[0]) == 100


def test_order_duplicates_and_nothing(video: Video) -> None:
    with open_video(video("h264_b_frames")) as reader:
        assert [number_in(image) for image in reader.read([40, 3, 40, 0, 59])] == [40, 3, 40, 0, 59]
        assert reader.read([]) == []


@pytest.mark.parametrize("index", [-1, 60, 10**9])
def test_out_of_range(video: Video, index: int) -> None:
    with open_video(video("h264_b_frames")) as reader, pytest.raises(VideoError) as caught:
        reader.read([0, index])
    assert caught.value.reason == "out_of_range"


def test_a_reader_stays_exact_when_a_caller_stops_midway(video: Video) -> None:
    with open_video(video("h264_b_frames")) as reader:
        for index, _ in reader.iter_decoded([5, 6, 7, 30], None):
            if index == 6:
                break
        assert [number_in(image) for image in reader.read([7, 6, 30])] == [7, 6, 30]


@pytest.mark.parametrize("backend", ["pyav", "decord"])
def test_a_closed_reader_refuses_to_read(video: Video, backend: Backend) -> None:
    pytest.importorskip(backend if backend == "decord" else "av")
    reader = open_video(video("h264_b_frames"), backend)
    reader.close()
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read([0])


@pytest.fixture
def index(video: Video) -> VideoIndex:
    with open_video(video("h264_b_frames")) as reader:  # 60 frames, keyframes at 0, 12, 24, 36, 48
        return reader.index


def test_frames_are_grouped_by_keyframe(index: VideoIndex) -> None:
    assert index.keyframe_indices() == [0, 12, 24, 36, 48]
    assert [numbers for numbers, _ in index.decode_ranges([0, 12, 13, 47, 48])] == [[0], [12, 13], [47], [48]]
    costs = [packets for _, packets in index.decode_ranges([0, 12, 47])]
    assert costs[:2] == [1, 1] and 9 <= costs[2] <= 12  # frame 47 is the last of its 12, B frames aside


def test_pixels_to_decode(index: VideoIndex) -> None:
    picture = index.info.width * index.info.height
    assert index.decoded_pixels([]) == 0
    assert index.decoded_pixels([0, 12, 24]) == 3 * picture  # keyframes
    assert 10 * picture <= index.decoded_pixels([0, 47]) <= 13 * picture


def test_little_work_is_not_split(index: VideoIndex) -> None:
    assert index.split_work([0, 30, 59], 1, 1) == [[0, 30, 59]]
    assert index.split_work([0, 30, 59], 4, 1000) == [[0, 30, 59]]
    assert index.split_work([], 4, 1) == [[]]
    keyframes = [0, 12, 24, 36]  # a packet each, but 1 + 3 + 2 of work
    assert index.split_work(keyframes, 4, 13) == [keyframes]
    assert index.split_work(keyframes, 4, 12) == [[0, 12], [24, 36]]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(0, 59), min_size=1), st.integers(1, 6))
def test_parts_cover_the_work_and_share_no_keyframe(index: VideoIndex, wanted: set[int], most: int) -> None:
    numbers = sorted(wanted)
    parts = index.split_work(numbers, most, 1)
    assert [number for part in parts for number in part] == numbers and all(parts) and len(parts) <= most
    groups = [{number // 12 for number in part} for part in parts]
    assert all(not left & right for left, right in pairwise(groups))
    if most >= 2 and len({number // 12 for number in numbers}) >= 2:
        assert len(parts) >= 2
