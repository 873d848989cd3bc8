"""Facts from packets and from decoding a stream's start, compared with how the files were made."""

from collections.abc import Callable

import av
import numpy as np
import pytest

from agentic_video.video.container import pick_stream
from agentic_video.video.demux import (
    NO_STAMP,
    Packets,
    StreamStart,
    decode_order,
    decode_start,
    is_complete,
    is_increasing,
    read_packets,
)
from agentic_video.video.errors import Deadline
from agentic_video.video.limits import Limits
from agentic_video.video.open import open_video

Video = Callable[[str], str]


def packets_of(path: str, limit: float | None = None) -> tuple[int, Packets]:
    with av.open(path) as container:
        stream = pick_stream(path, container)
        number, packets = stream.index, read_packets(container, stream, Deadline(path, limit), 100_000)
    assert packets is not None
    return number, packets


def start_of(path: str) -> StreamStart:
    return decode_start(path, *packets_of(path), Deadline(path, None), Limits())


def test_packets_come_in_the_order_of_the_file(video: Video) -> None:
    _, packets = packets_of(video("h264_b_frames"))
    assert packets.pts.size == packets.hidden.size == 60
    assert is_complete(packets.pts) and is_increasing(packets.dts)
    assert not is_increasing(packets.pts)  # B-frames are stored after the frames that they depend on
    assert np.flatnonzero(packets.keyframe).tolist() == [0, 12, 24, 36, 48]
    assert not packets.hidden.any()


def test_packets_hidden_by_an_edit_list_and_packets_without_times(video: Video) -> None:
    _, packets = packets_of(video("edit_list"))
    assert packets.pts.size - packets.hidden.sum() == 43
    _, packets = packets_of(video("h264_raw"))
    assert packets.pts.size == 40 and not is_complete(packets.pts)


@pytest.mark.parametrize(("name", "refreshed"), [("h264_b_frames", True), ("h264_intra_refresh", False)])
def test_keyframes_that_only_begin_to_refresh_are_recognized(video: Video, name: str, refreshed: bool) -> None:
    assert packets_of(video(name))[1].refreshed is refreshed


def test_stamps() -> None:
    def stamps(*values: int) -> tuple[bool, bool]:
        array = np.array(values, dtype=np.int64)
        return is_complete(array), is_increasing(array)

    assert stamps() == stamps(5) == stamps(1, 2, 9) == (True, True)
    assert stamps(2, 1) == (True, False)
    assert stamps(1, 1) == stamps(NO_STAMP) == stamps(NO_STAMP, 1) == stamps(1, NO_STAMP) == (False, False)


@pytest.mark.parametrize("name", ["h264_b_frames", "h264_raw", "with_audio", "vp9"])
def test_the_order_in_which_packets_become_frames(video: Video, name: str) -> None:
    with open_video(video(name)) as reader:
        index = reader.index
    assert decode_order(video(name), index.stream, Deadline(name, None), Limits()) == index.ordinals.tolist()


def test_the_first_frames_show_the_decoders_facts(video: Video) -> None:
    start = start_of(video("h264_10_bit"))
    assert (start.width, start.height, start.pixel_format, start.codec) == (128, 64, "yuv420p10le", "h264")
    assert start.rate == 25 and "mp4" in start.container.split(",")
    assert set(start.expected.tolist()) <= set(start.given)
    assert start_of(video("one_frame")).given == [0]


@pytest.mark.parametrize(
    ("name", "orientation"),
    [
        ("h264_b_frames", (False, False, False)),
        ("rotated_90", (True, False, True)),
        ("rotated_180", (False, True, True)),
        ("rotated_270", (True, True, False)),
    ],
)
def test_orientation(video: Video, name: str, orientation: tuple[bool, bool, bool]) -> None:
    assert start_of(video(name)).orientation == orientation
