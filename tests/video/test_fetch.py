"""Images by reference, through a real local Ray."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentic_video.types.frame import Frame, ImageRef, Origin, image_key
from agentic_video.video.errors import Reason, VideoError
from agentic_video.video.fetch import FetchStats, FrameFetcher
from agentic_video.video.index import VideoInfo
from agentic_video.video.node_store import NodeFrameStore, node_id
from agentic_video.video.source import FrameReply, FrameRequest
from tests.video.conftest import kill_actor
from tests.video.video_files import SPECS, make, number_in

SIZE = (128, 64)
BYTES = 128 * 64 * 3
INFO = VideoInfo("a.mp4", 1.0, 1, 1.0, 28, 28, 0, False, "none", "rgb24", 0.0)


def frames(store: NodeFrameStore, path: str, *indices: int) -> list[Frame]:
    return asyncio.run(store.serve(FrameRequest(path, indices, size=SIZE))).frames


@pytest.mark.ray
def test_images_of_a_node_s_store(local_ray: None, video: Callable[[str], str]) -> None:
    path = video("h264_b_frames")
    store = NodeFrameStore()  # lives as long as this client
    shown = frames(store, path, 30, 2, 30)
    drawn = replace(shown[0], image=255 - shown[0].image)
    refs = [ImageRef.of(frame, node_id()) for frame in [*shown, drawn]]
    assert [ref.image is None for ref in refs] == [True, True, True, False]
    assert refs[0] == refs[2] and len({ref.key for ref in refs}) == 3
    fetcher = FrameFetcher(max_bytes=BYTES)
    found = fetcher.fetch(refs)
    assert {key: number_in(image) for key, image in found.items() if key != drawn.key} == {
        refs[0].key: 30,
        refs[1].key: 2,
    }
    assert np.array_equal(found[drawn.key], drawn.image)
    assert fetcher.stats == FetchStats(asked=3, fetched=2, bytes=2 * BYTES)
    # the last image is kept
    again = asyncio.run(fetcher.afetch(refs[:2]))
    assert all(np.array_equal(again[key], found[key]) for key in again) and len(again) == 2
    assert (fetcher.stats.asked, fetcher.stats.fetched) == (5, 3)


@pytest.mark.ray
def test_frames_of_a_lost_store_are_decoded_again(local_ray: None, video: Callable[[str], str]) -> None:
    path = video("h264_b_frames")
    store = NodeFrameStore()
    shown = frames(store, path, 5, 40)
    refs = [ImageRef.of(frame, node_id()) for frame in shown]
    fetcher = FrameFetcher()

    def numbers(found: dict[str, np.ndarray]) -> list[int]:
        return [number_in(found[ref.key]) for ref in refs]

    kill_actor("agentic-video-frames")  # it wasn't asked yet: the handle is new
    assert numbers(fetcher.fetch(refs)) == [5, 40] and fetcher.stats.redone == 0
    kill_actor("agentic-video-frames")
    assert numbers(asyncio.run(fetcher.afetch(refs))) == [5, 40] and fetcher.stats.redone == 2
    kill_actor("agentic-video-frames")
    assert numbers(fetcher.fetch(refs)) == [5, 40] and fetcher.stats.redone == 4
    # what another node had, which is gone with its store
    assert numbers(fetcher.fetch([replace(ref, node="f" * 56) for ref in refs])) == [5, 40]
    assert fetcher.stats.fetched == 8


@pytest.mark.ray
def test_another_file_under_the_same_name_is_an_error(local_ray: None, tmp_path: Path) -> None:
    path = make(tmp_path / "a.mp4", SPECS["h264_b_frames"])
    store = NodeFrameStore()
    refs = [ImageRef.of(frame, node_id()) for frame in frames(store, str(path), 5)]
    path.unlink()
    make(path, replace(SPECS["h264_b_frames"], options={"preset": "ultrafast", "qp": "51"}))
    with pytest.raises(VideoError) as caught:
        FrameFetcher().fetch(refs)
    assert (caught.value.path, caught.value.reason) == (str(path), "changed")
    path.unlink()
    with pytest.raises(VideoError) as caught:
        asyncio.run(FrameFetcher().afetch(refs))
    assert caught.value.reason == "missing"


def test_a_picture_without_pixels_or_video_is_refused() -> None:
    bare = ImageRef.of(Frame(0, 0.0, np.zeros((28, 28, 3), np.uint8))).bare()
    with pytest.raises(ValueError, match="neither pixels nor a video"):
        FrameFetcher().fetch([bare])


class Answering:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: list[FrameReply | VideoError]) -> None:
        self.answers = answers
        self.serve = self
        monkeypatch.setattr("ray.get", lambda answer: answer)
        monkeypatch.setattr(FrameFetcher, "_store", lambda fetcher, ask: self)

    def remote(self, *asked: object) -> FrameReply | VideoError:
        return self.answers.pop(0)


def stored(path: str, shade: int = 0) -> Frame:
    image = np.full((28, 28, 3), shade, np.uint8)
    return Frame.stored(0, 0.0, image, Origin(path, 0, None), image_key(image))


def test_transient_failures_are_retried(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    late, full = VideoError("a.mp4", "timeout", "took too long"), VideoError("a.mp4", "machine", "no memory")
    frame, other = stored("a.mp4"), stored("b.mp4", shade=255)
    store = Answering(monkeypatch, [late, FrameReply(INFO, [other]), full, FrameReply(INFO, [frame])])
    with caplog.at_level(logging.WARNING):
        fetched = FrameFetcher(pauses=(0.0, 0.0)).fetch([ImageRef.of(frame), ImageRef.of(other)])
    assert set(fetched) == {frame.key, other.key} and not store.answers  # b.mp4 once, a.mp4 three times
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(("reason", "tries"), [("timeout", 3), ("changed", 1), ("corrupt", 1)])
def test_retries_end(monkeypatch: pytest.MonkeyPatch, reason: Reason, tries: int) -> None:
    store = Answering(monkeypatch, [VideoError("a.mp4", reason, "not available")] * 5)
    with pytest.raises(VideoError, match="not available"):
        FrameFetcher(pauses=(0.0, 0.0)).fetch([ImageRef.of(stored("a.mp4"))])
    assert len(store.answers) == 5 - tries
