"""What every reader promises, whatever decodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.open import Backend, open_video
from tests.video.video_files import number_in

Video = Callable[[str], str]


def test_order_duplicates_and_nothing(video: Video) -> None:
    with open_video(video("h264_b_frames")) as reader:
        assert [number_in(image) for image in reader.read([40, 3, 40, 0, 59])] == [40, 3, 40, 0, 59]
        assert reader.read([]) == []


@pytest.mark.parametrize("index", [-1, 60, 10**9])
def test_out_of_range(video: Video, index: int) -> None:
    with open_video(video("h264_b_frames")) as reader, pytest.raises(VideoError, match="frames 0 to 59") as caught:
        reader.read([0, index])
    assert caught.value.reason == "out_of_range"


def test_a_reader_stays_exact_when_a_caller_stops_midway(video: Video) -> None:
    with open_video(video("h264_b_frames")) as reader:
        for index, _ in reader.stream([5, 6, 7, 30], None):
            if index == 6:
                break
        assert [number_in(image) for image in reader.read([7, 6, 30])] == [7, 6, 30]


@pytest.mark.parametrize("backend", ["pyav", "decord"])
def test_a_closed_reader_says_so(video: Video, backend: Backend) -> None:
    pytest.importorskip(backend if backend == "decord" else "av")
    reader = open_video(video("h264_b_frames"), backend)
    reader.close()
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read([0])
