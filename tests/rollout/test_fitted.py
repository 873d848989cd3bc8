"""Pictures are shown at sizes that the model's processor keeps, whatever made them."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from transformers import Qwen2VLImageProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from agentic_video.families.base import ProcessorRules
from agentic_video.families.qwen_vl_sizes import rules_of
from agentic_video.rollout.fitted import PictureFitter
from agentic_video.tools.base import Video
from agentic_video.types.frame import Clip, Frame, Origin
from agentic_video.video.errors import VideoError
from agentic_video.video.sizes import crop, resize
from tests.conftest import MemorySource
from tests.families.processors import processor_of

RULES = rules_of(
    processor_of(
        Qwen2VLImageProcessor(patch_size=16, size={"shortest_edge": 65_536, "longest_edge": 16_777_216}),
        Qwen3VLVideoProcessor(size={"shortest_edge": 4096, "longest_edge": 25_165_824}),
    )
)


class StoredSource(MemorySource):
    """Frames with an origin, as a store gives them, whose picture depends on their number."""

    def draw(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> list[Frame]:
        width, height = size or (self.info.width, self.info.height)
        drawn = [
            resize(np.random.default_rng(index).integers(0, 256, (90, 160, 3), np.uint8), width, height)
            for index in indices
        ]
        self.requested += len(indices)
        pairs = zip(indices, drawn, strict=True)
        return [Frame.stored(i, i / self.info.fps, image, Origin(path, i, size), f"{i}-{size}") for i, image in pairs]


def fitted(parts: Sequence[Any], source: StoredSource, rules: ProcessorRules | None = RULES) -> tuple[Any, ...]:
    return asyncio.run(PictureFitter(rules, source, "memory").parts(tuple(parts)))


def stored(source: StoredSource, indices: Sequence[int], size: tuple[int, int]) -> list[Frame]:
    return source.draw("memory", indices, size)


def test_a_video_s_frames_come_at_a_kept_size() -> None:
    async def run() -> list[tuple[int, int]]:
        images = await Video.open("memory", StoredSource(size=(160, 90)), None, RULES)
        clips = await Video.open("memory", StoredSource(size=(160, 90)), None, RULES, clips=True)
        plain = await Video.open("memory", StoredSource(size=(160, 90)))
        frames = [
            *await images.frames([1, 2], (288, 160)),
            *await clips.frames([1, 2], (288, 160)),
            *await clips.frames([1], (288, 160)),  # a single frame is an image
            *await images.frames_at([1.0]),  # the video's own size
            *await plain.frames([1], (288, 160)),
        ]
        return [(frame.width, frame.height) for frame in frames]

    large = 352, 192  # also of 160 x 90, enlarged to 342 x 192: sides are rounded up
    assert asyncio.run(run()) == [large, large, (288, 160), (288, 160), large, large, (288, 160)]


def test_a_video_without_a_kept_size_is_an_error() -> None:
    tight = rules_of(processor_of(Qwen2VLImageProcessor(size={"shortest_edge": 7840, "longest_edge": 7840})))

    async def run() -> None:
        video = await Video.open("memory", StoredSource(size=(90, 80)), None, tight)
        await video.frames([1])

    with pytest.raises(VideoError, match="90x80"):
        asyncio.run(run())


def test_fitting_pictures_are_left_alone() -> None:
    source = StoredSource()
    parts = ("a", *stored(source, [1], (352, 192)))
    source.requested = 0
    assert fitted(parts, source) is parts and source.requested == 0
    other = ("a", *stored(source, [1], (56, 56)))
    assert fitted(other, source, None) is other  # a server's own processor


def test_a_stored_frame_is_requested_again_and_keeps_its_origin() -> None:
    source = StoredSource()
    text, frame = fitted(("a", *stored(source, [7], (288, 160))), source)
    assert text == "a"
    assert (frame.width, frame.height, frame.index) == (352, 192, 7)
    assert frame.origin == Origin("memory", 7, (352, 192))


def test_a_clips_frames_keep_their_times() -> None:
    source = StoredSource()
    (shown,) = fitted((Clip(tuple(stored(source, [3, 9], (30, 20)))),), source)
    assert isinstance(shown, Clip)
    # 2 x 64 x 32 pixels of 2 frames are just enough; 30 x 20 pixels are grown to what is nearest in shape
    assert (shown.width, shown.height) == RULES.kept(30, 20, 2)
    assert [frame.index for frame in shown.frames] == [3, 9]
    assert [frame.time for frame in shown.frames] == [3 / source.info.fps, 9 / source.info.fps]


def test_a_region_is_cut_out_again_in_one_step() -> None:
    """SFT crops it so, too: a picture that is resized twice has other pixels."""
    source = StoredSource()
    (whole,) = stored(source, [5], (320, 180))
    cut = crop(whole, (10, 20, 110, 100), (60, 48))
    (shown,) = fitted((cut,), source)
    assert (shown.width, shown.height) == RULES.kept(60, 48)
    assert shown.crop == cut.crop
    assert np.array_equal(shown.image, crop(whole, (10, 20, 110, 100), (shown.width, shown.height)).image)


def test_a_picture_that_a_tool_made_is_resized() -> None:
    drawn = Frame(2, 0.2, np.random.default_rng(0).integers(0, 256, (45, 80, 3), np.uint8))
    shown, again = fitted((drawn, drawn), StoredSource())
    assert (shown.width, shown.height) == RULES.kept(80, 45)
    assert shown.origin is None and shown.crop is None
    assert np.array_equal(shown.image, resize(drawn.image, shown.width, shown.height))
    assert np.array_equal(shown.image, again.image)
