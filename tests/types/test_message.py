import numpy as np
import pytest

from agentic_video.types.frame import Clip, Frame
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
    assert Observation([part]).parts == [part]  # type: ignore[arg-type]
