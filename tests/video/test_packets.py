"""What demuxing alone tells, next to what is known of how the files were made."""

from __future__ import annotations

from collections.abc import Callable

import av
import numpy as np
import pytest

from agentic_video.video.container import pick_stream
from agentic_video.video.deadline import Deadline
from agentic_video.video.errors import VideoError
from agentic_video.video.packets import NO_STAMP, Packets, is_complete, is_increasing, read_packets

Video = Callable[[str], str]


def packets_of(path: str, limit: float | None = None) -> Packets:
    with av.open(path) as container:
        packets = read_packets(container, pick_stream(path, container), Deadline(path, limit), 100_000)
    assert packets is not None
    return packets


def test_packets_come_in_the_order_of_the_file(video: Video) -> None:
    packets = packets_of(video("h264_b_frames"))
    assert packets.pts.size == packets.hidden.size == 60
    assert is_complete(packets.pts) and is_increasing(packets.dts)
    assert not is_increasing(packets.pts)  # B-frames are stored after the frames that they lean on
    assert np.flatnonzero(packets.keyframe).tolist() == [0, 12, 24, 36, 48]
    assert not packets.hidden.any()


def test_what_an_edit_list_hides_is_marked(video: Video) -> None:
    packets = packets_of(video("edit_list"))
    assert packets.pts.size - packets.hidden.sum() == 43


def test_a_raw_stream_has_no_presentation_times(video: Video) -> None:
    packets = packets_of(video("h264_raw"))
    assert packets.pts.size == 40 and not is_complete(packets.pts)


@pytest.mark.parametrize(("name", "refreshed"), [("h264_b_frames", True), ("h264_intra_refresh", False)])
def test_keyframes_that_only_begin_to_refresh_are_seen(video: Video, name: str, refreshed: bool) -> None:
    assert packets_of(video(name)).refreshed is refreshed


def test_demuxing_stops_at_the_deadline(video: Video) -> None:
    with pytest.raises(VideoError) as caught:
        packets_of(video("h264_b_frames"), 1e-9)
    assert caught.value.reason == "timeout"


def test_stamps() -> None:
    def stamps(*values: int) -> tuple[bool, bool]:
        array = np.array(values, dtype=np.int64)
        return is_complete(array), is_increasing(array)

    assert stamps() == stamps(5) == stamps(1, 2, 9) == (True, True)
    assert stamps(2, 1) == (True, False)
    assert stamps(1, 1) == stamps(NO_STAMP) == stamps(NO_STAMP, 1) == stamps(1, NO_STAMP) == (False, False)
