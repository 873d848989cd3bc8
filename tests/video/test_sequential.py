"""What decoding from the beginning tells, against what the index made of it."""

from __future__ import annotations

from collections.abc import Callable

import av
import pytest

from agentic_video.video.container import pick_stream
from agentic_video.video.deadline import Deadline
from agentic_video.video.limits import Limits
from agentic_video.video.open import open_video
from agentic_video.video.packets import read_packets
from agentic_video.video.sequential import StreamStart, decode_order, decode_start

Video = Callable[[str], str]


def start_of(path: str) -> StreamStart:
    deadline = Deadline(path, None)
    with av.open(path) as container:
        stream = pick_stream(path, container)
        number, packets = stream.index, read_packets(container, stream, deadline, 100_000)
    assert packets is not None
    return decode_start(path, number, packets, deadline, Limits())


@pytest.mark.parametrize("name", ["h264_b_frames", "h264_raw", "with_audio", "vp9"])
def test_the_order_in_which_packets_become_frames(video: Video, name: str) -> None:
    with open_video(video(name)) as reader:
        index = reader.index
    assert decode_order(video(name), index.stream, Deadline(name, None), Limits()) == index.ordinals.tolist()


def test_the_first_frames_tell_what_the_decoder_knows(video: Video) -> None:
    start = start_of(video("h264_10_bit"))
    assert (start.width, start.height, start.pixel_format, start.codec) == (128, 64, "yuv420p10le", "h264")
    assert start.rate == 25 and "mp4" in start.container.split(",")
    # each frame that should be out is out
    assert set(start.expected.tolist()) <= set(start.given)


def test_a_stream_shorter_than_the_look_at_its_start(video: Video) -> None:
    assert start_of(video("one_frame")).given == [0]


@pytest.mark.parametrize(
    ("name", "turn"),
    [
        ("h264_b_frames", (False, False, False)),
        ("rotated_90", (True, False, True)),
        ("rotated_180", (False, True, True)),
        ("rotated_270", (True, True, False)),
    ],
)
def test_how_a_picture_is_turned(video: Video, name: str, turn: tuple[bool, bool, bool]) -> None:
    assert start_of(video(name)).turn == turn
