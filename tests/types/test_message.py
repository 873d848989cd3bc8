from typing import Any

import numpy as np
import pytest
from PIL import Image

from agentic_video.types.frame import Clip, ClipRef, Frame, FrameRef
from agentic_video.types.message import Message, Observation, Part, text_of, visuals_of

ONE, TWO = (Frame(number, number / 10, np.zeros((28, 56, 3), np.uint8)) for number in (1, 2))


def test_frames_of_an_observation_are_in_order() -> None:
    observation = Observation(("seen: ", TWO, " and ", ONE), legal_calls=1)
    assert [frame.index for frame in observation.frames] == [2, 1]
    assert Observation(("nothing",)).frames == ()
    assert (observation.legal_calls, observation.illegal_calls) == (1, 0)


def test_text_of_a_message_marks_its_images() -> None:
    assert text_of(Message("user", ("a ", ONE, TWO, "b")).parts) == "a <image><image>b"
    assert text_of(()) == ""


def test_a_clip_is_one_part_of_several_frames() -> None:
    clip = Clip((ONE, TWO))
    observation = Observation(("a ", TWO, clip, "b"))
    assert [frame.index for frame in observation.frames] == [2, 1, 2]
    assert text_of(observation.parts) == "a <image><video>b"
    assert visuals_of(observation.parts) == (TWO, clip)


@pytest.mark.parametrize("part", ["frame", ONE, Clip((ONE, TWO))])
def test_one_part_that_is_in_no_tuple_is_refused(part: Part) -> None:
    kind = type(part).__name__
    with pytest.raises(TypeError, match=rf"Observation\.parts must be a tuple, got {kind}; .*comma: \(part,\)"):
        Observation(part)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=rf"Message\.parts must be a tuple, got {kind}; .*comma: \(part,\)"):
        Message("user", part)  # type: ignore[arg-type]
    assert Observation([part]).parts == (part,)  # type: ignore[arg-type]


def test_parts_may_come_from_a_generator() -> None:
    shown = Observation(part for part in ("a", ONE))  # type: ignore[arg-type]
    assert shown.parts == ("a", ONE) and shown.frames == (ONE,)
    assert Message("user", iter([ONE])).parts == (ONE,)  # type: ignore[arg-type]


def test_half_of_a_surrogate_pair_is_shown_as_a_replacement() -> None:
    """A model's JSON may hold one, and a system may repeat what it was asked."""
    shown = Observation(("no \ud800.", "\ud83d\ude00", "caf\u00e9"))
    assert shown.parts == ("no \ufffd.", "\N{GRINNING FACE}", "caf\u00e9")


def test_references_are_shown_when_an_episode_is_replayed() -> None:
    one, two = FrameRef(0, 0.0, 56, 28), FrameRef(1, 0.1, 56, 28)
    assert Message("user", (one, ClipRef((one, two)))).parts[0] == one  # type: ignore[arg-type]


PIL_PICTURE = Image.fromarray(ONE.image)


@pytest.mark.parametrize(
    "parts", [None, 3.5, PIL_PICTURE, ONE.image, {"image": ONE}, {"a"}], ids=lambda parts: type(parts).__name__
)
def test_parts_in_no_tuple_are_named(parts: Any) -> None:
    got = type(parts).__name__
    with pytest.raises(TypeError, match=rf"^Observation\.parts must be a tuple, got {got}; "):
        Observation(parts)


@pytest.mark.parametrize(
    "part", [None, 3.5, [ONE], PIL_PICTURE, ONE.image, {"image": ONE}], ids=lambda part: type(part).__name__
)
def test_a_part_that_is_none_is_named(part: Any) -> None:
    message = rf"\.parts\[1\] must be a text, a Frame or a Clip, got {type(part).__name__}$"
    with pytest.raises(TypeError, match=f"^Observation{message}"):
        Observation(("a", part))
    with pytest.raises(TypeError, match=f"^Message{message}"):
        Message("user", ("a", part))


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (np.zeros((4, 6, 4), np.float64), r"of float64 and shape \(4, 6, 4\)"),
        (np.zeros((4, 6), np.uint8), r"of uint8 and shape \(4, 6\)"),
        (PIL_PICTURE, "that is a Image"),
    ],
)
def test_a_picture_that_no_model_takes_is_named(image: Any, said: str) -> None:
    message = rf"\.parts\[1\] is a picture {said}; it must be uint8 of shape \(height, width, 3\)$"
    frame = Frame(0, 0.0, image)
    with pytest.raises(TypeError, match=f"^Observation{message}"):
        Observation(("a", frame))
    with pytest.raises(TypeError, match=f"^Message{message}"):
        Message("user", ("a", frame))


def test_a_clip_s_pictures_are_looked_at_too() -> None:
    grey = np.zeros((4, 6), np.uint8)
    with pytest.raises(TypeError, match=r"^Observation\.parts\[0\] is a picture of uint8 and shape \(4, 6\)"):
        Observation((Clip((Frame(0, 0.0, grey), Frame(1, 0.1, grey))),))


def test_counts_are_plain_whole_numbers() -> None:
    shown = Observation((), legal_calls=np.sum([True, True]), illegal_calls=True, unread_images=np.int32(1))
    counts = (shown.legal_calls, shown.illegal_calls, shown.unread_images)
    assert counts == (2, 1, 1) and {type(count) for count in counts} == {int}


@pytest.mark.parametrize("name", ["legal_calls", "illegal_calls", "unread_images"])
def test_a_count_that_is_none_is_named(name: str) -> None:
    for value in (None, 1.0, "1"):
        message = rf"^Observation\.{name} must be a whole number, got {type(value).__name__}$"
        with pytest.raises(TypeError, match=message):
            Observation((), **{name: value})  # type: ignore[arg-type]
