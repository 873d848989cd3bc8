from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentic_video.types.frame import Clip, Crop, Frame, FrameRef, ImageRef, Origin, VideoRef, image_key, is_picture


def test_frames_are_told_apart_by_identity() -> None:
    # comparing pixels would be slow, and ambiguous for arrays
    picture = np.zeros((2, 2, 3), np.uint8)
    one, other = Frame(0, 0.0, picture), Frame(0, 0.0, picture)
    assert one == one and one != other and len({one, other}) == 2


def test_a_frame_has_plain_numbers() -> None:
    picture = np.zeros((2, 2, 3), np.uint8)
    made = Frame(np.int64(3), np.float32(0.5), picture)
    assert (made.index, made.time) == (3, 0.5) and (type(made.index), type(made.time)) == (int, float)
    stored = Frame.stored(np.int64(3), np.float64(0.5), picture, Origin("film", 3, None), "k")
    assert (type(stored.index), type(stored.time)) == (int, float)


@pytest.mark.parametrize(
    ("index", "time", "message"),
    [
        (None, 0.0, r"Frame\.index must be a whole number, got NoneType"),
        ("a", 0.0, r"Frame\.index must be a whole number, got str"),
        (1.0, 0.0, r"Frame\.index must be a whole number, got float"),
        (-1, 0.0, r"Frame\.index must be 0 or above, got -1"),
        (0, None, r"Frame\.time must be a number, got NoneType"),
        (0, "0.5", r"Frame\.time must be a number, got str"),
    ],
)
def test_numbers_that_no_record_holds_are_named(index: Any, time: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}$"):
        Frame(index, time, np.zeros((2, 2, 3), np.uint8))


def test_a_picture_is_rgb_of_8_bits() -> None:
    picture = np.zeros((4, 6, 3), np.uint8)
    assert (
        is_picture(picture) and is_picture(picture[::-1, ::2, ::-1]) and is_picture(np.broadcast_to(picture, (4, 6, 3)))
    )
    shapes = [(4, 6), (4, 6, 4), (4, 6, 1), (3, 4, 6), (0, 6, 3), (1, 4, 6, 3)]
    others = [np.zeros(shape, np.uint8) for shape in shapes] + [picture.astype(float), picture.astype(np.int64), None]
    assert not any(map(is_picture, others))


def clip_frame(number: int, time: float, width: int = 28) -> Frame:
    return Frame(number, time, np.full((28, width, 3), number, np.uint8))


def test_a_clip_s_key_tells_frames_and_times_apart() -> None:
    one, two, three = clip_frame(1, 0.5), clip_frame(2, 1.0), clip_frame(2, 1.5)
    assert Clip((one, two)).key == Clip((clip_frame(1, 0.5), clip_frame(2, 1.0))).key
    assert len({Clip((one, two)).key, Clip((one, three)).key, Clip((one, one)).key, Clip((one, two, two)).key}) == 4
    assert Clip((one, two)).times == (0.5, 1.0)


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ((clip_frame(1, 0.0),), "at least 2"),
        ((), "at least 2"),
        ((clip_frame(1, 0.0), clip_frame(2, 1.0, 56)), "one size"),
        ((clip_frame(2, 1.0), clip_frame(1, 0.0)), "order of time"),
    ],
)
def test_what_is_no_clip_is_refused(frames: tuple[Frame, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Clip(frames)


def test_a_clip_travels_as_its_frames_do() -> None:
    stored = Frame.stored(3, 0.3, np.zeros((28, 28, 3), np.uint8), Origin("film", 3, None), "k")
    drawn = clip_frame(4, 0.4)
    ref = VideoRef.of(Clip((stored, drawn)), "node")
    assert ref.frames == (ImageRef.of(stored, "node"), ImageRef.of(drawn))
    assert ref.frames[0].image is None and ref.frames[1].image is not None
    assert (ref.times, ref.width, ref.height) == ((0.3, 0.4), 28, 28)
    assert ref.key == Clip((stored, drawn)).key


def _noise(width: int, height: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_a_picture_that_a_tool_made_is_recorded_by_content() -> None:
    drawn = Frame(7, 0.7, _noise(20, 10))
    ref = FrameRef.of(drawn)
    assert ref.made == drawn.key and not ref.unrecorded
    assert (ref.recorded() == drawn.image).all()
    # of two drawings on one frame neither is the other
    assert FrameRef.of(Frame(7, 0.7, _noise(20, 10) // 2)) != ref


def test_what_a_video_gives_again_stays_a_reference() -> None:
    image = _noise(20, 10)
    stored = Frame.stored(7, 0.7, image, Origin("a.mp4", 7, None), image_key(image))
    for ref in (FrameRef.of(stored), FrameRef.of(stored, "a.mp4")):
        assert (ref.made, ref.picture) == ("", None)
    cut = FrameRef.of(Frame.cropped(7, 0.7, image[:5], Crop((0, 0, 20, 5), 20, 10)))
    assert cut.crop is not None and cut.made == ""
    # its number finds nothing in the episode's own video
    assert (FrameRef.of(stored, "b.mp4").recorded() == image).all()


def test_a_picture_that_is_too_large_is_marked_and_not_recorded() -> None:
    ref = FrameRef.of(Frame(0, 0.0, _noise(1200, 900)))  # 3.2 MB that no PNG makes smaller
    assert ref.made and ref.unrecorded
    with pytest.raises(ValueError, match="wasn't recorded"):
        ref.recorded()
    assert FrameRef.of(Frame(0, 0.0, np.broadcast_to(np.zeros(1, np.uint8), (20_000, 20_000, 3)))).unrecorded


@pytest.mark.parametrize("spoil", ["cut", "text", "other", "size"])
def test_a_damaged_picture_is_no_picture(spoil: str) -> None:
    ref = FrameRef.of(Frame(0, 0.0, _noise(20, 10)))
    assert ref.picture is not None
    other = FrameRef.of(Frame(0, 0.0, _noise(20, 10) // 2)).picture
    spoiled = {"cut": ref.picture[:60], "text": b"no picture", "other": other, "size": ref.picture}[spoil]
    with pytest.raises(ValueError, match="picture"):
        replace(ref, picture=spoiled, width=21 if spoil == "size" else 20).recorded()
