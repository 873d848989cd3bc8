"""Files that hold no video that can be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest

from tests.video.video_files import reason_of

Video = Callable[[str], str]


def test_audio_only(tmp_path: Path) -> None:
    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        samples = av.AudioFrame.from_ndarray(np.zeros((1, 44100), dtype=np.float32), format="fltp", layout="mono")
        samples.sample_rate = 44100
        for packet in [*stream.encode(samples), *stream.encode(None)]:
            container.mux(packet)
    assert reason_of(path) == "no_video_stream"


def test_an_mp4_cut_off_before_its_index(video: Video, tmp_path: Path) -> None:
    path = tmp_path / "cut.mp4"
    data = Path(video("h264_b_frames")).read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert reason_of(path) == "truncated"


def test_absurd_sizes_are_refused(video: Video, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentic_video.video.container.MAX_SIDE", 100)
    assert reason_of(Path(video("h264_b_frames"))) == "unsupported"
