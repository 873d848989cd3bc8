"""EVA's grammar: what a text is, how frames are labelled, the stated length of a video."""

import numpy as np
import pytest

from agentic_video.systems.eva.grammar import labelled, parse_turn, shown_seconds
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from tests.systems.eva.texts import LOOK, REPLY, call


@pytest.mark.parametrize(("duration", "told"), [(60.0, 59), (60.5, 60), (61.4, 60), (1.2, 1), (0.1, 1)])
def test_length_is_half_a_second_less_in_whole_seconds(duration: float, told: int) -> None:
    assert shown_seconds(duration) == told


ONE = ToolCall("frame_select", {"start_time": 41, "end_time": 43, "nframes": 4, "resize": 1})


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (LOOK, Calls((ONE,))),
        (call().replace("arguments", "parameters"), Calls((ONE,))),
        (call() + "\nand\n" + call(), Calls((ONE, ONE))),
        (call().replace("</tool_call>", call()[11:]), Calls((ONE, ONE))),  # two objects between two tags
        (LOOK + " now I wait for the frames", Calls((ONE,))),
        (REPLY, Answer("B")),
        (LOOK + REPLY, Answer("B")),  # an answer counts before calls
        (call() + "<answer>B</answer>", Answer("B")),
        ("<answer>A</answer> no, <answer>B</answer>", Answer("A")),  # the first one
        ("<think>is it <answer>A</answer>?</think><answer>B</answer>", Answer("B")),  # a thought is no answer
        (f"<think>shall I {call(1, 2)}</think>{call()}", Calls((ONE,))),  # and no call
        (call() + "<answer> </answer>", Calls((ONE,))),  # an empty answer is none
        ("<answer>it is\nred</answer>", Answer("it is\nred")),
    ],
)
def test_reading_a_turn(text: str, action: Action) -> None:
    assert parse_turn(text) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "B",
        "<answer>B",
        "B</answer>",
        "</answer>B<answer>",
        "<think><answer>B</answer>",
        "<think>" + call(),
        "<think><answer>B</answer></think>",
        "<answer></answer>",
        "<think>a</think><answer></answer><answer>B</answer>",  # the first one counts
        call()[:-12],
        call() + "<tool_call>{}",
        "\x00" * 1000,
        "<tool_call></tool_call>",
        "<tool_call>7</tool_call>",
        call(start="[1]"),
        call(start="NaN"),
    ],
)
def test_what_is_no_turn(text: str) -> None:
    assert isinstance(parse_turn(text), Illegal)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I don't know.", "neither a call nor an answer"),
        (call() + "<tool_call>{}", "a call has no end"),
        ("<tool_call>{</tool_call>", "the call is not valid JSON"),
    ],
)
def test_why_it_is_no_turn(text: str, reason: str) -> None:
    assert parse_turn(text) == Illegal(reason)


def test_labels_carry_number_minutes_and_whole_seconds_of_the_time_asked_for() -> None:
    first, second = (Frame(index, index / 30, np.zeros((2, 2, 3), np.uint8)) for index in (375, 3750))
    # the frames' own times are 12.50 s and 125.00 s
    assert labelled([first, second], [12.4, 124.99]) == (
        "Frame 0 at [00:12]: ",
        first,
        "\nFrame 1 at [02:04]: ",
        second,
    )
    assert labelled([], []) == ()
