"""Video-o3's grammar: the last block counts, near-JSON is repaired, a whole turn is a thought and one block."""

import pytest
from hypothesis import strategies as st

from agentic_video.systems.videoo3.grammar import parse_turn, thinks_then
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from tests.systems.videoo3.texts import REPLY, ground


def looks(start: float, end: float, strategy: str = "medium") -> Action:
    arguments = {"temporal_segment": [start, end], "sampling_strategy": strategy}
    return Calls((ToolCall("ground_segment", arguments),))


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (ground(40, 48), looks(40, 48)),
        (REPLY, Answer("B")),
        ("<think>a</think><answer>A</answer><answer> B </answer>", Answer("B")),  # the last block counts
        (ground(1, 3) + ground(5, 9), looks(5, 9)),
        (REPLY + ground(1, 3), looks(1, 3)),
        ("<grounding>{'temporal_segment': [1, 3], 'sampling_strategy': 'fine'}</grounding>", looks(1, 3, "fine")),
        ('<grounding>json {"temporal_segment": [1, 3], "sampling_strategy": "fine"};</grounding>', looks(1, 3, "fine")),
        ("<grounding>[1, 3]</grounding>", Illegal("the call is not a JSON object")),
        ("<grounding></grounding>", Illegal("the call is not valid JSON")),
        ("<grounding>} {</grounding>", Illegal("the call is not valid JSON")),
        ('<grounding>{"temporal_segment": [NaN, 3]}</grounding>', Illegal("NaN is not a number")),
        ("<grounding>{", Illegal("neither a call nor an answer")),
        ("</grounding><grounding>", Illegal("neither a call nor an answer")),
        ("B", Illegal("neither a call nor an answer")),
        ("", Illegal("neither a call nor an answer")),
    ],
)
def test_turns(text: str, action: Action) -> None:
    assert parse_turn(text) == action


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (REPLY, True),
        ("\n<think>a</think>\n<answer>B</answer>\n", True),
        (" <think>a</think><answer>B</answer>", False),  # a line break is free, a space isn't
        ("<think>a</think>\n\n<answer>B</answer>", False),
        ("<think>a</think>so<answer>B</answer>", False),
        ("<think>a</think><answer>B</answer>.", False),
        ("<answer>B</answer>", False),
        ("<think>a<think>b</think><answer>B</answer>", False),
        ("<think>a</think><think>b</think><answer>B</answer>", False),
        ("<think>a</think><answer>A</answer><answer>B</answer>", False),
        ("<think>a<grounding></think><answer>B</answer>", False),
        ("<answer>B</answer><think>a</think>", False),
        (ground(1, 2), False),
    ],
)
def test_a_whole_turn_is_a_thought_and_an_answer(text: str, whole: bool) -> None:
    assert thinks_then(text, "answer") is whole
    assert thinks_then(text.replace("answer", "grounding"), "grounding") is (whole or text == ground(1, 2))


PIECES = st.sampled_from(["<think>", "</think>", "<grounding>", "</grounding>", "<answer>", "</answer>", "{", "'", "B"])
