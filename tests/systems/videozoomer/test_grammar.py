"""VideoZoomer's grammar: what a text is, and how frames are labelled."""

import numpy as np
import pytest

from agentic_video.systems.videozoomer.grammar import labelled, parse_turn
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from tests.systems.videozoomer.texts import REPLY, ZOOM

CLOSER = Calls((ToolCall("video_zoom", {"segment": [41, 43], "fps": 2}),))
NEITHER = Illegal("neither a call nor an answer")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (ZOOM, CLOSER),
        (ZOOM + " \n", CLOSER),
        (REPLY, Answer("B")),
        (REPLY + ZOOM, CLOSER),  # the engine stopped at the call: it counts
        (ZOOM + REPLY, Answer("B")),
        (ZOOM + ZOOM, Illegal("one turn may hold only one call")),
        ("</video_zoom>", NEITHER),
        (REPLY + "</video_zoom>", Answer("B")),  # a closing tag alone is no call
        (REPLY + "<video_zoom></video_zoom>", Illegal("the call is not valid JSON")),
        ("<video_zoom>" + ZOOM, Illegal("one turn may hold only one call")),
        ("<answer>B</answer></answer>", Answer("B")),
        ("<video_zoom>{segment: 1}</video_zoom>", Illegal("the call is not valid JSON")),
        ("<answer>B", NEITHER),
        ("</answer><answer>", NEITHER),
        ("", NEITHER),
        ("\x00" * 1000, NEITHER),
    ],
)
def test_reading_a_turn(text: str, action: Action) -> None:
    assert parse_turn(text) == action


def test_labels_carry_the_number_within_the_clip_and_the_time() -> None:
    first, second = (Frame(index, index / 30, np.zeros((2, 2, 3), np.uint8)) for index in (375, 400))
    assert labelled([first, second]) == ("<frame0_time12.50s>", first, "<frame1_time13.33s>", second)
    assert labelled([]) == ()
