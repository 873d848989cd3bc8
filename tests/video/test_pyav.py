"""Every frame of every kind of file, whole or damaged, against a full sequential decode."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.open import open_video
from agentic_video.video.pyav import PyavReader
from agentic_video.video.reader import VideoReader
from tests.video.video_files import SPECS, number_in, sequential, shuffled

REAL = Path(__file__).parents[3] / "shared" / "data" / "videos"
REAL_FILES = sorted(REAL.iterdir()) if REAL.is_dir() else []
Video = Callable[[str], str]


@pytest.mark.parametrize("name", SPECS)
def test_pyav_gives_the_frames_of_a_sequential_decode(video: Video, name: str) -> None:
    path, spec = video(name), SPECS[name]
    truth = sequential(path, spec.rotation)
    if name != "edit_list":
        assert [number_in(image) for image in truth.images] == list(range(spec.count))
    with open_video(path) as reader:
        info = reader.info
        assert info.num_frames == len(truth.images) == len(reader.timestamps)
        assert (info.width, info.height, info.rotation) == (128, 64, spec.rotation)
        if name != "h264_raw":
            np.testing.assert_allclose(reader.timestamps, truth.times, atol=1e-9)
        together = reader.read(range(info.num_frames))
        for index, image in enumerate(together):
            assert np.array_equal(image, truth.images[index]), index
        for index in shuffled(info.num_frames):
            assert np.array_equal(reader.read([index])[0], truth.images[index]), index
        for index in shuffled(info.num_frames, seed=1)[:10]:
            pair = reader.read([index, (index * 7 + 3) % info.num_frames])
            assert np.array_equal(pair[0], truth.images[index]), index


@pytest.mark.skipif(not REAL_FILES, reason="no real videos here")
@pytest.mark.parametrize("path", REAL_FILES, ids=lambda path: path.name)
def test_real_files(path: Path) -> None:
    truth = sequential(str(path))
    with open_video(path) as reader:
        assert reader.info.num_frames == len(truth.images)
        np.testing.assert_allclose(reader.timestamps, truth.times, atol=1e-9)
        for index in shuffled(reader.info.num_frames)[:15]:
            assert np.array_equal(reader.read([index])[0], truth.images[index]), index


def pyav_reader(path: str) -> PyavReader:
    reader = open_video(path)
    assert isinstance(reader, PyavReader)
    return reader


def test_seeks_only_when_it_saves_decoding(video: Video) -> None:
    with pyav_reader(video("h264_b_frames")) as reader:  # keyframes at 0, 12, 24, 36, 48
        assert reader.index.keyframes.tolist() == [0, 12, 24, 36, 48]
        reader.read(range(60))
        assert reader.jumps == 0 and reader.packets == 60
        # fewer than 12 packets: decoding began at 36
        reader.read([37])
        assert reader.jumps == 1 and reader.packets < 60 + 12
        before = reader.packets
        reader.read([38, 39, 40])
        assert reader.jumps == 1 and reader.packets < before + 12
    with pyav_reader(video("h264_long_gop")) as reader:  # its only keyframe is the first
        assert number_in(reader.read([110])[0]) == 110
        assert reader.jumps == 0
        assert number_in(reader.read([2])[0]) == 2
        assert reader.jumps == 1 and reader.packets < 2 * 120


def check_frames(reader: VideoReader) -> int:
    """Counts the frames that decode; each must show what the undamaged file shows at that time."""
    right = 0
    for index in shuffled(reader.info.num_frames):
        try:
            image = reader.read([index])[0]
        except VideoError as error:
            assert error.reason == "corrupt"
            continue
        assert number_in(image) == round(reader.timestamps[index] * 25), index
        right += 1
    return right


@pytest.mark.parametrize("name", ["late_start", "h264_ts", "vp9", "av1", "hevc_10_bit_ts"])
@pytest.mark.parametrize("share", [0.4, 0.8])
def test_cut_off_files_give_right_frames_or_errors(video: Video, tmp_path: Path, name: str, share: float) -> None:
    whole = Path(video(name))
    path = tmp_path / whole.name
    data = whole.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with open_video(path) as reader:
        assert 1 <= reader.info.num_frames < 60
        assert check_frames(reader) >= reader.info.num_frames - 2


@pytest.mark.parametrize("name", ["h264_b_frames", "late_start", "h264_ts", "hevc", "vp9"])
def test_damage_stays_within_its_group_of_pictures(video: Video, tmp_path: Path, name: str) -> None:
    whole = Path(video(name))
    path = tmp_path / whole.name
    data = bytearray(whole.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 300] = random.Random(0).randbytes(300)
    path.write_bytes(data)
    with open_video(path) as reader:
        wrong = []
        for index in shuffled(reader.info.num_frames):
            try:
                assert number_in(reader.read([index])[0]) == round(reader.timestamps[index] * 25)
            except VideoError as error:
                assert error.reason == "corrupt"
                wrong.append(index)
            except AssertionError:  # concealed by the decoder
                wrong.append(index)
    assert not wrong or max(wrong) - min(wrong) < 2 * int(SPECS[name].options.get("g", "12"))
