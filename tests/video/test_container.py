"""Files without a readable video."""

import contextlib
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from agentic_video.video.container import open_container
from agentic_video.video.errors import Deadline, VideoError
from agentic_video.video.open import open_video
from agentic_video.video.store import FrameStore
from benchmarks.hostile.videos import BASES, base
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


LISTS = {
    "itself.m3u8": "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nitself.m3u8\n",
    "endless.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\ngood.ts\n",
    "other.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\ngood.ts\n#EXT-X-ENDLIST\n",
    "playlist.mp4": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\ngood.ts\n#EXT-X-ENDLIST\n",
    "files.ffconcat": "ffconcat version 1.0\nfile good.ts\n",
    "files.txt": "ffconcat version 1.0\nfile files.txt\n",
    "notes.txt": "Some notes.\n" * 100,
    "release.nfo": "\x1b[1mA release\x1b[0m\n" * 100,
    "a.srt": "1\n00:00:01,000 --> 00:00:02,000\nHello\n",
    "a.sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 9 RTP/AVP 96\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_files_and_texts_are_no_videos(tmp_path: Path, name: str) -> None:
    (tmp_path / "good.ts").write_bytes(base("ts"))
    (tmp_path / name).write_text(LISTS[name])
    assert reason_of(tmp_path / name) in ("unsupported", "corrupt")


def test_a_picture_is_no_video(tmp_path: Path) -> None:
    for name in ("a.png", "frame-%d.png", "a.jpg"):
        Image.new("RGB", (64, 64)).save(tmp_path / name)
        assert reason_of(tmp_path / name) == "unsupported"


@pytest.mark.parametrize("name", sorted(BASES))
def test_formats_that_hold_videos(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"a.{name}"
    path.write_bytes(base(name))
    with open_video(path) as reader:
        assert reader.info.num_frames >= 23
        assert reader.read([5])[0].shape == (reader.info.height, reader.info.width, 3)


def test_opening_keeps_to_the_time_limit(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.ts"  # stands for a slow disk
    os.mkfifo(pipe)
    done = threading.Event()

    def drip() -> None:
        with contextlib.suppress(BrokenPipeError), open(pipe, "wb", buffering=0) as writer:
            while not done.wait(0.01):
                writer.write(b"\x47\x1f\xff\x10" + bytes(184))

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    try:
        with pytest.raises(VideoError) as caught:
            open_container(str(pipe), Deadline(str(pipe), 0.2))
        assert caught.value.reason == "timeout"
    finally:
        done.set()
        thread.join(timeout=60)


def test_out_of_descriptors_is_not_the_videos_fault(video: Video) -> None:
    path = video("h264_b_frames")
    store = FrameStore()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        # Below the numbers of the standard streams: no other thread can give one back meanwhile.
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        with pytest.raises(VideoError, match="ulimit") as caught:
            store.probe(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.reason == "machine"
    assert store.stats().errors == 0
    assert store.probe(path).num_frames == 60, "nothing was remembered"
