"""FrameMind's grammar: what a text is, which calls can be read, how frames are labelled."""

import numpy as np
import pytest

from agentic_video.systems.framemind.grammar import evidence_header, labelled, parse_turn, read_call
from agentic_video.types.action import REFUSED, Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from tests.systems.framemind.texts import REPLY, REST, at, clip, look


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (look(at(42)), Calls((ToolCall("FrameAt", {"t": 42.0}),))),
        (REST, Calls(())),
        (look(clip(1, 2.5)), Calls((ToolCall("VideoClip", {"t_start": 1.0, "t_end": 2.5}),))),
        (REPLY, Answer("B")),
        ("<answer>A</answer> no, <answer> B </answer>", Answer("B")),
        (look(at(42)) + REPLY, Answer("B")),  # an answer stops
        ("<think>maybe <answer>A</answer></think><answer>B</answer>", Answer("B")),  # a thought is no answer
        ("<think>maybe <answer>A</answer></think><turn_sum>a</turn_sum>", Calls(())),
        (f"<think>{at(42)}</think><turn_sum>a</turn_sum>", Calls(())),  # nor a call
        (f"<think>a</think><turn_sum>{at(42)}</turn_sum>", Calls(())),
        ("<think>the <turn_sum>a</turn_sum>", Calls(())),  # a thought that is never closed hides nothing
        ("<think>the <answer>B</answer>", Answer("B")),
        ("<tool_call>{}<turn_sum>a</turn_sum>", Calls(())),  # a call that isn't closed is none
    ],
)
def test_reading_a_turn(text: str, action: Action) -> None:
    assert parse_turn(text, 3) == action


@pytest.mark.parametrize("text", ["", "B", "<answer>B", "</answer><answer>", "</turn_sum>", "<think>a</turn_sum>"])
def test_what_is_neither(text: str) -> None:
    assert parse_turn(text, 3) == Illegal("neither a turn summary nor an answer")


def test_calls_beyond_the_cap_become_one_refusal() -> None:
    once, left = ToolCall("FrameAt", {"t": 42.0}), "only 2 calls are allowed in a turn, the others were left out"
    assert parse_turn(look(at(42), at(42)), 2) == Calls((once, once))
    assert parse_turn(look(*[at(42)] * 9), 2) == Calls((once, once, ToolCall(REFUSED, {"reason": left})))


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ('{"name": "FrameAt", "arguments": {"t": 3}}', ToolCall("FrameAt", {"t": 3.0})),
        ('{"name": "FrameAt", "arguments": {}}', ToolCall("FrameAt", {})),  # what it lacks, the tool says
        ("FrameAt(3)", ToolCall(REFUSED, {"reason": "the call is not valid JSON"})),
        (
            '{"name": "refused", "arguments": {"reason": "x"}}',
            ToolCall(REFUSED, {"reason": "there is no such tool, only FrameAt and VideoClip"}),
        ),
        ('{"name": "FrameAt", "arguments": [3]}', ToolCall(REFUSED, {"reason": "arguments must be a JSON object"})),
        (
            '{"name": "FrameAt", "arguments": {"t": "3"}}',
            ToolCall(REFUSED, {"reason": "every argument must be a number"}),
        ),
    ],
)
def test_what_can_be_read_of_a_call(body: str, call: ToolCall) -> None:
    assert read_call(body) == call


def test_labels_carry_the_time() -> None:
    first, second = (Frame(index, index / 30, np.zeros((2, 2, 3), np.uint8)) for index in (375, 400))
    assert labelled([first, second]) == ("<12.50s>", first, "<13.33s>", second)
    assert labelled([]) == ()


def test_a_tools_name_stands_before_its_frames() -> None:
    assert evidence_header("VideoClip") == "VideoClip:\n"
