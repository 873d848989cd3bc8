"""The way in: what may be opened, how, and how long it may take."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.open import open_video
from tests.video.video_files import number_in, reason_of

Video = Callable[[str], str]


def test_files_that_are_no_videos(video: Video, tmp_path: Path) -> None:
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


def test_unknown_backend(video: Video) -> None:
    with pytest.raises(ValueError, match="unknown backend"):
        open_video(video("h264_b_frames"), backend="opencv")  # type: ignore[arg-type]


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
            list(reader.stream([100], 1e-6))
        assert caught.value.reason == "timeout"
        assert number_in(reader.read([100])[0]) == 100
    for limit in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="time_limit"):
            open_video(video("h264_long_gop"), time_limit=limit)
