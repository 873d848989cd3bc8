"""decord's frames against a full sequential decode, or its refusal."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

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
"""Files that decord 0.6 decodes wrongly or cannot open, as a check of each showed."""


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


def test_missing_decord_is_an_error(video: Video, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "decord", None)
    with pytest.raises(VideoError, match="pip install decord"):
        open_video(video("h264_b_frames"), "decord")


def test_a_decoder_that_spins_costs_the_time_limit(
    video: Video, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for decord holds Python's lock, as decord does, and never returns."""
    path = video("h264_b_frames")
    with open_video(path) as right:
        (tmp_path / "times.json").write_text(json.dumps(right.timestamps.tolist()))
        shape = right.read([0])[0].shape
    (tmp_path / "decord.py").write_text(SPINNING.replace("SHAPE", str(shape)))
    monkeypatch.syspath_prepend(str(tmp_path))
    with open_video(path, "decord", time_limit=10.0) as reader:
        assert [image.shape for image in reader.read([0, 1])] == [shape] * 2
        process = reader._process  # type: ignore[attr-defined]
        with pytest.raises(VideoError) as error:
            next(iter(reader.iter_decoded([2], time_limit=1.0)))
        assert error.value.reason == "timeout"
        assert process.poll() is not None, "it was killed"
        with pytest.raises(VideoError):
            reader.read([0])


SPINNING = """
import ctypes, json, os
import numpy as np

class logging:
    QUIET = 0
    set_level = staticmethod(lambda level: None)

def cpu(number):
    return number

class VideoReader:
    def __init__(self, path, ctx, num_threads):
        with open(os.path.join(os.path.dirname(__file__), "times.json")) as file:
            self.times = json.load(file)
    def __len__(self):
        return len(self.times)
    def get_frame_timestamp(self, numbers):
        return [[self.times[number], 0.0] for number in numbers]
    def __getitem__(self, index):
        if index == 2:
            ctypes.PyDLL(None).pause()  # a call that keeps the lock
        return self
    def asnumpy(self):
        return np.zeros(SHAPE, np.uint8)
"""
