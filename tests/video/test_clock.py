"""Times count from the file's start: when its earliest stream starts."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from agentic_video.tools.base import Video as Looked
from agentic_video.tools.frame_number import number_at
from agentic_video.tools.frame_select import check_select
from agentic_video.types.frame import Frame
from agentic_video.video.index import VideoInfo
from agentic_video.video.open import open_video
from agentic_video.video.store import FrameStore
from agentic_video.video.store_config import StoreConfig
from agentic_video.video.subtitles import Subtitle, spoken_at
from tests.video.video_files import X264, Spec, make, number_in

Video = Callable[[str], str]

LATE = Spec("mp4", "libx264", X264, shift=50, audio=True)
"""Sound from 0 s on, pictures from 2 s to 4.4 s."""


@pytest.mark.parametrize(
    ("spec", "tolerance"),
    [
        pytest.param(LATE, 0.002, id="mp4"),
        pytest.param(replace(LATE, suffix="mkv"), 0.002, id="mkv"),
        pytest.param(replace(LATE, suffix="mov"), 0.002, id="mov"),
        # its muxer shifts all streams, and the sound begins with its encoder's lead-in of 23 ms
        pytest.param(replace(LATE, suffix="ts"), 0.025, id="ts"),
        pytest.param(
            replace(LATE, suffix="ts", muxing={"output_ts_offset": "50000"}), 0.025, id="ts with a large start"
        ),
    ],
)
def test_pictures_that_start_after_the_sound(spec: Spec, tolerance: float, tmp_path: Path) -> None:
    path = str(make(tmp_path / f"late.{spec.suffix}", spec))
    with open_video(path) as reader:
        info, times = reader.info, reader.timestamps
        assert info.first_time == times[0] == pytest.approx(2, abs=tolerance)
        np.testing.assert_allclose(times, times[0] + np.arange(60) / 25, atol=0.002)
        assert info.duration == pytest.approx(4.4, abs=tolerance + 0.002)
        assert (info.fps, info.variable_frame_rate) == (pytest.approx(25), False)
        assert number_in(reader.read([30])[0]) == 30
    [frame] = FrameStore().frames(path, [25])
    assert frame.time == pytest.approx(3, abs=tolerance)
    subtitles = [Subtitle(0.0, 1.9, "black"), Subtitle(2.9, 3.1, "the middle")]
    assert [line.text for line in spoken_at(subtitles, [frame.time])] == ["the middle"]


@pytest.mark.parametrize("name", ["with_audio", "late_start", "late_start_mp4", "edit_list", "h264_ts"])
def test_pictures_that_start_first_start_at_0(video: Video, name: str) -> None:
    """Also where the sound has the lead-in of its encoder before time 0, and where there is none."""
    with open_video(video(name)) as reader:
        assert reader.info.first_time == reader.timestamps[0] == 0


def test_tools_look_where_the_file_s_clock_says(tmp_path: Path) -> None:
    path = str(make(tmp_path / "late.mp4", LATE))

    async def look() -> tuple[VideoInfo, list[float], list[Frame]]:
        looked = await Looked.open(path, FrameStore())
        places = await looked.frame_positions([0.0, 2.0, 3.0], (64, 32))
        return looked.info, places, await looked.frames_at([0.0, 2.0, 3.0, 9.0], (64, 32))

    info, places, frames = asyncio.run(look())
    assert places == pytest.approx([0, 0, 25], abs=0.06)
    assert [frame.index for frame in frames] == [0, 0, 25, 59]
    assert number_at({"time": "00:03"}, info.fps, info.first_time) == 25
    assert number_at({"time": "00:01"}, info.fps, info.first_time) == 0
    request = check_select({"start_time": 1.0, "end_time": 2.2, "nframes": 50, "resize": 1}, info)
    assert request.count == 6, "0 to 5 are shown until 2.2 s"


def _anamorphic(path: Path, rotation: int = 0) -> str:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 120, 80, "yuv420p"
        stream.codec_context.sample_aspect_ratio = Fraction(4, 3)
        if rotation:
            stream.set_display_rotation(rotation)
        for number in range(5):
            frame = av.VideoFrame.from_ndarray(np.full((80, 120, 3), 40 * number, np.uint8), format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return str(path)


@pytest.mark.parametrize(("rotation", "stored", "shown"), [(0, (120, 80), (160, 80)), (90, (80, 120), (80, 160))])
def test_pixels_that_are_not_square_are_stretched_where_the_key_says_so(
    tmp_path: Path, rotation: int, stored: tuple[int, int], shown: tuple[int, int]
) -> None:
    """120 pixels of 4:3 are as wide as 160 square ones."""
    path = _anamorphic(tmp_path / "wide.mp4", rotation)
    for square, size in ((False, stored), (True, shown)):
        store = FrameStore(StoreConfig(square_pixels=square))
        info = store.probe(path)
        assert (info.width, info.height) == size
        [frame] = store.frames(path, [2])
        assert (frame.width, frame.height) == size
