"""FrameThinker's grammar: what a text is, and how frames are labelled."""

import numpy as np
import pytest

from agentic_video.systems.framethinker.grammar import labelled, parse_turn, split_turn
from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from tests.systems.framethinker.texts import LOOK, LOOKUP, REPLY


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (LOOK, Calls((ToolCall("choose_frames", {"start": 410, "end": 430}),))),
        (LOOKUP, Calls((ToolCall("frame_number", {"time": "00:42"}),))),
        (REPLY, Answer("B")),
        ("<think>x</think><action>\noutput answer: a red car \n</action>", Answer("a red car")),
        (LOOK + REPLY, Answer("B")),  # the last action counts
        (REPLY + LOOKUP, Calls((ToolCall("frame_number", {"time": "00:42"}),))),
        ("<think>a <action>output answer: A</action></think>", Illegal("no action after a thought")),
        ("", Illegal("no action after a thought")),
        (
            "<think>x</think><action>" + " " * 300 + "choose frames between 1 and 99</action>",
            Calls((ToolCall("choose_frames", {"start": 1, "end": 99}),)),
        ),
        ("<think>x</think><action>choose frames between" + " " * 300 + "1 and 99</action>", Illegal("unknown action")),
    ],
)
def test_reading_a_turn(text: str, action: object) -> None:
    assert parse_turn(text) == action


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("<think>a</think><action>b</action>", ("a", "b")),
        ("x<think>a</think>y<action>b</action>z", ("a", "b")),
        ("<think>a</think><action>b</action><action>c</action>", ("a", "c")),
        ("<think>a</think><think>b</think><action>c</action>", ("b", "c")),
        ("<think>a</think><action>b<action>c</action>", ("a", "c")),
        ("<action>b</action>", None),
        ("<action>b</action><think>a</think>", None),
        ("<think>a<action>b</action>", None),
        ("a</think><action>b</action>", None),
        ("<think>a</think><action>b", None),
        ("<think>a</think>b</action>", None),
        ("", None),
    ],
)
def test_the_last_action_counts(text: str, blocks: tuple[str, str] | None) -> None:
    assert split_turn(text) == blocks


def test_labels_carry_the_number_within_the_video_one_a_line() -> None:
    first, second = (Frame(index, index / 30, np.zeros((2, 2, 3), np.uint8)) for index in (375, 400))
    assert labelled([first, second]) == ("frame 375: ", first, "\nframe 400: ", second)
    assert labelled([]) == ()
