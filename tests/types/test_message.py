from typing import Any

import numpy as np
import pytest
from PIL import Image

from agentic_video.types.frame import Clip, ClipRef, Frame, FrameRef
from agentic_video.types.message import Message, Observation, text_of, visuals_of

ONE, TWO = (Frame(number, number / 10, np.zeros((28, 56, 3), np.uint8)) for number in (1, 2))


def test_text_of_a_message_marks_its_images() -> None:
    assert text_of(Message("user", ("a ", ONE, TWO, "b")).parts) == "a <image><image>b"
    assert text_of(()) == ""


def test_a_clip_is_one_part_of_several_frames() -> None:
    clip = Clip((ONE, TWO))
    observation = Observation(("a ", TWO, clip, "b"))
    assert [frame.index for frame in observation.frames] == [2, 1, 2]
    assert text_of(observation.parts) == "a <image><video>b"
    assert visuals_of(observation.parts) == (TWO, clip)


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
GREY = np.zeros((4, 6), np.uint8)


@pytest.mark.parametrize("make", [Observation, lambda parts: Message("user", parts)])
@pytest.mark.parametrize(
    ("parts", "place"),
    [
        *(
            (parts, "parts must be a tuple")
            for parts in ("frame", ONE, Clip((ONE, TWO)), None, 3.5, PIL_PICTURE, ONE.image, {"image": ONE}, {"a"})
        ),
        *((("a", part), r"parts\[1\] ") for part in (None, 3.5, [ONE], PIL_PICTURE, ONE.image, {"image": ONE})),
        *(
            (("a", Frame(0, 0.0, image)), r"parts\[1\] ")  # type: ignore[arg-type]
            for image in (np.zeros((4, 6, 4), np.float64), GREY, PIL_PICTURE)
        ),
        ((Clip((Frame(0, 0.0, GREY), Frame(1, 0.1, GREY))),), r"parts\[0\] "),
    ],
)
def test_parts_that_no_model_takes_are_named(make: Any, parts: Any, place: str) -> None:
    with pytest.raises(TypeError, match=rf"^(Observation|Message)\.{place}"):
        make(parts)
    assert Observation([ONE]).parts == (ONE,)  # type: ignore[arg-type]


def test_counts_are_plain_whole_numbers() -> None:
    shown = Observation((), legal_calls=np.sum([True, True]), illegal_calls=True, unread_images=np.int32(1))
    counts = (shown.legal_calls, shown.illegal_calls, shown.unread_images)
    assert counts == (2, 1, 1) and {type(count) for count in counts} == {int}
    for name in ("legal_calls", "illegal_calls", "unread_images"):
        for value in (None, 1.0, "1"):
            with pytest.raises(TypeError, match=rf"^Observation\.{name} "):
                Observation((), **{name: value})  # type: ignore[arg-type]
