"""Damaged frames: their replacements, and the check before a run."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.datasets.rows import video_problem
from agentic_video.video.damage import find_damaged, runs, too_damaged
from agentic_video.video.errors import VideoError
from agentic_video.video.open import open_video
from agentic_video.video.store import FrameStore
from agentic_video.video.store_config import StoreConfig
from tests.video.video_files import Spec, make, number_in, remux, shuffled

Video = Callable[[str], str]

PLAIN = Spec("mp4", "libx264", {"preset": "veryfast", "bf": "0", "g": "12", "sc_threshold": "0"})
"""60 frames, a keyframe every 12, each depending on the previous one: a packet's position is its frame's number."""


def broken(tmp_path: Path, *places: int, spec: Spec = PLAIN) -> str:
    """A video in which packets don't decode: NAL units that are longer than their packets."""

    def spoil(number: int, data: bytearray) -> None:
        if number in places:
            data[:] = b"\xff" * len(data)

    whole = make(tmp_path / f"whole.{spec.suffix}", spec)
    return str(remux(str(whole), tmp_path / f"broken.{spec.suffix}", spoil))


def test_a_broken_packet_costs_only_its_frames(tmp_path: Path) -> None:
    """Packet 16 of a group of 12 to 23 takes frames 16 to 23 with it."""
    with open_video(broken(tmp_path, 16)) as reader:
        assert find_damaged(reader) == list(range(16, 24))
        found = dict(reader.iter_decoded(range(60), None))
    assert sorted(index for index, convert in found.items() if isinstance(convert, VideoError)) == list(range(16, 24))
    assert number_in(found[30]()) == 30  # type: ignore[operator]


def test_the_nearest_readable_frame_is_served_with_its_own_number_and_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, store = broken(tmp_path, 16), FrameStore()
    with caplog.at_level(logging.WARNING):
        frames = store.frames(path, [0, 16, 19, 20, 23, 40])
    assert [frame.index for frame in frames] == [0, 15, 15, 24, 24, 40]  # 19 is 4 from 15 and 5 from 24
    assert [frame.time for frame in frames] == pytest.approx([0, 0.6, 0.6, 0.96, 0.96, 1.6])
    assert [number_in(frame.image) for frame in frames] == [0, 15, 15, 24, 24, 40]
    assert {frame.origin and frame.origin.index for frame in frames} == {0, 15, 24, 40}
    stats = store.stats()
    assert (stats.damaged, stats.replaced, stats.errors) == (8, 4, 0)
    assert path in caplog.text and "16-23" in caplog.text
    # in any order, at another size, and from the cache: the same
    for size in (None, (64, 32)):
        assert [frame.index for frame in store.frames(path, [20, 16, 20], size)] == [24, 15, 24]


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_replacement_does_not_depend_on_earlier_requests(tmp_path: Path, order: int) -> None:
    path, store = broken(tmp_path, 0, 30, 59), FrameStore()
    shown = {index: store.frames(path, [index])[0].index for index in shuffled(60, order)}
    readable = [index for index in range(60) if not (index < 12 or 30 <= index < 36 or index == 59)]
    assert shown == {index: min(readable, key=lambda other: (abs(other - index), other)) for index in range(60)}


def test_replacements_are_within_a_bound(tmp_path: Path) -> None:
    path = broken(tmp_path, 16)
    store = FrameStore(StoreConfig(replace_within=0.1))  # 2.5 frames
    assert [frame.index for frame in store.frames(path, [16, 17])] == [15, 15]
    with pytest.raises(VideoError, match="replace_within") as caught:
        store.frames(path, [19])
    assert caught.value.reason == "corrupt"
    with pytest.raises(VideoError, match="frame 16 "):
        FrameStore(StoreConfig(replace_within=0)).frames(path, [16])


def test_a_video_with_too_many_damaged_frames_is_refused(tmp_path: Path) -> None:
    path = broken(tmp_path, 16)  # 8 of 60
    assert FrameStore(StoreConfig(damaged_share=8 / 60)).frames(path, [20])[0].index == 24
    store = FrameStore(StoreConfig(damaged_share=0.05))
    for wanted in (20, 0):
        with pytest.raises(VideoError, match="damaged_share") as caught:
            store.frames(path, [wanted])
        assert caught.value.reason == "corrupt"


@pytest.mark.parametrize("name", ["hevc", "vp9", "h264_ts", "late_start", "mpeg4_avi"])
@pytest.mark.parametrize("part", [0.02, 0.5, 0.97])
def test_damage_anywhere_leaves_every_request_a_frame(video: Video, tmp_path: Path, name: str, part: float) -> None:
    data = bytearray(Path(video(name)).read_bytes())
    place = int(len(data) * part)
    length = min(400, len(data) // 20)
    data[place : place + length] = bytes(length)
    path = tmp_path / Path(video(name)).name
    path.write_bytes(data)
    try:
        with open_video(path) as reader:
            readable = set(range(reader.info.num_frames)) - set(find_damaged(reader))
            times = reader.timestamps
    except VideoError as error:
        assert error.reason in {"corrupt", "no_frames", "truncated", "no_video_stream", "unsupported"}
        return
    store = FrameStore(StoreConfig(damaged_share=1.0))
    for frame in store.frames(str(path), range(len(times))):
        assert frame.index in readable and frame.time == times[frame.index]


def test_rows_of_damaged_videos_are_found_before_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = broken(tmp_path, 16)
    assert video_problem(path, "probe") == "", "opening a video shows nothing of frames inside it"
    with caplog.at_level(logging.WARNING):
        assert video_problem(path, "decode") == ""
    assert "8 of 60" in caplog.text and "16-23" in caplog.text
    assert "damaged_share" in video_problem(path, "decode", damaged_share=0.1)
    assert video_problem(str(make(tmp_path / "good.mp4", PLAIN)), "decode", damaged_share=0.0) == ""


def test_a_file_shorter_than_its_header_promises(tmp_path: Path) -> None:
    whole = make(tmp_path / "whole.mp4", replace(PLAIN, muxing={"movflags": "faststart"}))
    data = whole.read_bytes()
    path = tmp_path / "cut.mp4"
    path.write_bytes(data[: len(data) * 4 // 10])
    with open_video(path) as reader:
        info = reader.info
    assert info.shown_seconds + info.missing_seconds == pytest.approx(2.4)
    assert 0.3 < info.missing_seconds / 2.4 < 0.9
    for check in ("probe", "decode"):
        assert "[truncated]" in video_problem(str(path), check, damaged_share=0.2)
    with pytest.raises(VideoError, match="copy it again") as caught:
        FrameStore(StoreConfig(damaged_share=0.2)).probe(str(path))
    assert caught.value.reason == "truncated"
    FrameStore(StoreConfig(damaged_share=0.95)).frames(str(path), [0])
    with open_video(whole) as reader:
        assert reader.info.missing_seconds == 0


def test_runs_of_numbers() -> None:
    assert runs([7, 3, 5, 4]) == "3-5, 7"
    assert runs(range(0, 100, 2)).endswith("14, ...")
    assert too_damaged("v", range(5), 10, 0.5) is None and too_damaged("v", range(6), 10, 0.5) is not None
