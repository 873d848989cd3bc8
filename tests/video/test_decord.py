"""decord's frames against a full sequential decode, or its refusal."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.open import open_video
from tests.video.video_files import SPECS, number_in, sequential, shuffled

Video = Callable[[str], str]

DECORD_REFUSES = {
    "h264_open_gop",
    "h264_intra_refresh",
    "h264_ts",
    "h264_raw",
    "hevc",
    "hevc_10_bit_ts",
    "av1",
    "mpeg4_avi",
    "mpeg2_ps",
    "edit_list",
    "rotated_270",
}
"""What decord 0.6 cannot do: checked one by one, it gives wrong frames or cannot open the file."""


@pytest.mark.parametrize("name", SPECS)
def test_decord_is_right_or_refuses(video: Video, name: str) -> None:
    pytest.importorskip("decord")
    path = video(name)
    truth = sequential(path, SPECS[name].rotation)
    try:
        reader = open_video(path, "decord")
    except VideoError as error:
        assert error.reason == "unsupported" and "pyav" in str(error)
        assert name in DECORD_REFUSES, str(error)
        return
    assert name not in DECORD_REFUSES
    with reader:
        numbers = [number_in(image) for image in truth.images]
        assert [number_in(image) for image in reader.read(range(reader.info.num_frames))] == numbers
        for index in shuffled(reader.info.num_frames):
            image = reader.read([index])[0]
            assert number_in(image) == numbers[index]
            assert np.abs(image.astype(int) - truth.images[index]).mean() < 6


def test_missing_decord_is_said(video: Video, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "decord", None)
    with pytest.raises(VideoError, match="pip install decord"):
        open_video(video("h264_b_frames"), "decord")
