"""VideoBrain's grammar: what a text is, which calls can be read, how frames are labelled."""

import numpy as np
import pytest

from agentic_video.systems.videobrain.grammar import labelled, parse_turn
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from tests.systems.videobrain.texts import LOOK, REPLY

LOOKS = Calls((ToolCall("uniform_sample", {"start_frame": 410, "end_frame": 430}),))
SEVERAL = Illegal("one turn may hold only one call")
NEITHER = Illegal("neither a call nor an answer")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (LOOK, LOOKS),
        (LOOK + "\n", LOOKS),
        (REPLY, Answer("B")),
        (REPLY + LOOK, LOOKS),  # the engine stopped at the call: it counts
        (LOOK + REPLY, Answer("B")),
        (LOOK + LOOK, SEVERAL),
        ("</tool_call>", SEVERAL),
        ("<answer>B", NEITHER),
        ("</answer><answer>", NEITHER),
        ("", NEITHER),
    ],
)
def test_reading_a_turn(text: str, action: Action) -> None:
    assert parse_turn(text) == action


@pytest.mark.parametrize(
    "text",
    [
        "</tool_call><tool_call>{}</tool_call>",
        "<tool_call>[1]</tool_call>",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"name": "uniform_sample"}</tool_call>',
        '<tool_call>{"name": ["uniform_sample"], "arguments": {}}</tool_call>',
        '<tool_call>{"name": "uniform_sample", "arguments": [1, 9]}</tool_call>',
        '<tool_call>{"name": "x", "arguments": {"a": [1]}}</tool_call>',
        '<tool_call>{"name": "x", "arguments": {"a": NaN}}</tool_call>',
        r'<tool_call>{"name": "x", "arguments": {"a": "\ud800"}}</tool_call>',
        r'<tool_call>{"name": "x", "arguments": {"\ud800": 1}}</tool_call>',
        r'<tool_call>{"name": "\ud800", "arguments": {}}</tool_call>',
    ],
)
def test_calls_that_cannot_be_read(text: str) -> None:
    assert isinstance(parse_turn(text), Illegal)


def test_labels_carry_the_number_within_the_video_on_a_line_of_its_own() -> None:
    first, second = (Frame(index, index / 30, np.zeros((2, 2, 3), np.uint8)) for index in (375, 400))
    assert labelled([first, second]) == ("\nframe 375: ", first, "\nframe 400: ", second)
    assert labelled([]) == ()
