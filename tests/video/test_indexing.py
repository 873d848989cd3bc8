"""What an index tells of a file: which frames it has, when they are shown, what the video is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.open import open_video
from tests.video.video_files import SPECS, X264, Spec, make, number_in, reason_of, remux

Video = Callable[[str], str]


def test_facts(video: Video) -> None:
    with open_video(video("h264_b_frames")) as reader:
        info = reader.info
    assert (info.num_frames, info.fps, info.duration) == (60, pytest.approx(25), pytest.approx(2.4))
    assert (info.codec, info.pixel_format, info.variable_frame_rate, info.start_time) == ("h264", "yuv420p", False, 0)
    with open_video(video("h264_10_bit")) as reader:
        assert reader.info.pixel_format == "yuv420p10le"


@pytest.mark.parametrize("name", ["variable_rate", "variable_rate_mkv"])
def test_variable_rate_is_seen_and_times_are_the_encoded_ones(video: Video, name: str) -> None:
    spec = SPECS[name]
    with open_video(video(name)) as reader:
        assert reader.info.variable_frame_rate
        wanted = [(spec.pts(number) - spec.pts(0)) / 1000 for number in range(spec.count)]
        np.testing.assert_allclose(reader.timestamps, wanted, atol=1e-6)
        assert reader.info.fps == pytest.approx(60 / reader.info.duration)


@pytest.mark.parametrize(("name", "rate"), [("long_last_frame", 25), ("long_last_frame_mkv", 30)])
def test_a_last_frame_that_stays_on_for_long_is_no_part_of_the_rate(video: Video, name: str, rate: int) -> None:
    """As where a video is padded to its sound: the number of a frame is its time times the rate all the same."""
    with open_video(video(name)) as reader:
        info = reader.info
        assert (info.num_frames, info.variable_frame_rate) == (60, False)
        assert info.duration == pytest.approx((59 + 100) / rate, abs=0.002)
        assert info.fps == pytest.approx(rate)
        np.testing.assert_allclose(reader.timestamps * info.fps, range(60), atol=0.02)


@pytest.mark.parametrize("name", ["late_start", "late_start_mp4"])
def test_times_count_from_the_first_frame(video: Video, name: str) -> None:
    with open_video(video(name)) as reader:
        assert reader.info.start_time == pytest.approx(2.0, abs=0.002)
        assert reader.timestamps[0] == 0 and reader.timestamps[1] == pytest.approx(0.04)
        assert not reader.timestamps.flags.writeable


def test_edit_list_hides_the_frames_before_its_start(video: Video) -> None:
    with open_video(video("edit_list")) as reader:
        assert [number_in(image) for image in reader.read([0, 42])] == [17, 59]
        assert reader.info.num_frames == 43


def test_packets_that_are_never_shown_are_no_frames(video: Video, tmp_path: Path) -> None:
    def hide(number: int, data: bytearray) -> None:
        if number in (7, 30):
            data[0] &= ~0x10  # as a VP8 alternate reference frame has it

    path = remux(video("vp8"), tmp_path / "hidden.webm", hide)
    shown = [number for number in range(60) if number not in (7, 30)]
    with open_video(path) as reader:
        assert reader.info.num_frames == 58
        assert [number_in(image) for image in reader.read(range(58))] == shown
        assert number_in(reader.read([29])[0]) == 31
        assert reader.timestamps[29] == pytest.approx(31 / 25)


TWICE_AS_FINE = Spec("ts", "libx264", {**X264, "bf": "2"}, rate=50, pts=lambda number: 2 * number)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(TWICE_AS_FINE, replace(TWICE_AS_FINE, shift=1), id="half a frame later"),
        pytest.param(SPECS["h264_ts"], replace(SPECS["h264_ts"], shift=30), id="in the middle of the first"),
        pytest.param(SPECS["h264_ts"], SPECS["h264_ts"], id="at the same time"),
        pytest.param(replace(SPECS["h264_ts"], shift=25_000), SPECS["h264_ts"], id="long before"),
        pytest.param(SPECS["mpeg2_ps"], SPECS["mpeg2_ps"], id="program stream"),
    ],
)
def test_recordings_that_were_joined_with_a_clock_each_are_refused(first: Spec, second: Spec, tmp_path: Path) -> None:
    """Their frames would be shown in turns, or hours apart."""
    pieces = [make(tmp_path / f"{number}.{spec.suffix}", spec) for number, spec in enumerate((first, second))]
    joined = tmp_path / f"joined.{first.suffix}"
    joined.write_bytes(b"".join(piece.read_bytes() for piece in pieces))
    assert reason_of(joined) == "unsupported"
    with pytest.raises(VideoError, match=r"clock starts again on the way.*remux"), open_video(str(joined)):
        pass


def test_recordings_that_were_joined_with_one_clock_are_one_video(tmp_path: Path) -> None:
    plain = replace(SPECS["h264_ts"], options={**X264, "bf": "0"})
    pieces = [make(tmp_path / f"{number}.ts", replace(plain, shift=60 * number)) for number in range(2)]
    joined = tmp_path / "joined.ts"
    joined.write_bytes(b"".join(piece.read_bytes() for piece in pieces))
    with open_video(str(joined)) as reader:
        assert reader.info.duration == pytest.approx(120 / 25)
        assert [number_in(image) for image in reader.read([0, 40, 110])] == [0, 40, 51]  # one is lost where they meet


def test_a_video_without_frames(video: Video, tmp_path: Path) -> None:
    path = tmp_path / "none.mkv"
    with av.open(video("late_start")) as source, av.open(str(path), "w") as container:
        container.add_stream_from_template(source.streams.video[0])
        container.start_encoding()
    assert reason_of(path) in {"no_frames", "corrupt"}
