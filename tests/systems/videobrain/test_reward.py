"""Worked cases of VideoBrain's reward: gate * (0.05 + acc + behaviour)."""

import json
import re
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.systems.videobrain.reward import (
    VideoBrainWeights,
    gate_fault,
    question_class,
    videobrain_score,
)
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.row import QuestionClass, RowError, VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn
from tests.growth import assert_linear

THOUGHT = "<thinking>look</thinking>"
UNEVEN = "thoughts don't equal calls and answers"
REPLY = "<thinking>seen</thinking><answer>B</answer>"


def uniform(start: Any = 100, end: Any = 200, **more: Any) -> dict[str, Any]:
    return {"name": "uniform_sample", "arguments": {"start_frame": start, "end_frame": end, **more}}


def clip(prompt: Any = "a red car", start: Any = 0, end: Any = 600) -> dict[str, Any]:
    return {"name": "clip_sample", "arguments": {"start_frame": start, "end_frame": end, "prompt": prompt}}


def called(call: dict[str, Any], text: str | None = None) -> Turn:
    """A turn whose call was carried out, whatever it says: the gate's rules are tested one by one."""
    action = Calls((ToolCall(call["name"], call["arguments"]),))
    return Turn(text or f"{THOUGHT}<tool_call>{json.dumps(call)}</tool_call>", action, 9, legal_calls=1)


def reply(text: str = REPLY, answer: str = "B") -> Turn:
    return Turn(text, Answer(answer), 9)


def episode(*turns: Turn, end: EndReason = EndReason.ANSWER) -> Trajectory:
    return Trajectory("q", "videobrain", (), turns, end)


def reward(trajectory: Trajectory, kind: QuestionClass, acc: float) -> float:
    passed = gate_fault(trajectory, 1) is None
    return videobrain_score(trajectory, kind, acc, passed, VideoBrainWeights()).reward


ONE_LOOK = episode(called(uniform()), reply())
NO_LOOK = episode(reply())


@pytest.mark.parametrize(
    ("kind", "acc", "trajectory", "expected"),
    [
        # every cell of the behaviour matrix: 0.05 + acc + cell
        ("direct", 1.0, NO_LOOK, 1.55),
        ("direct", 1.0, ONE_LOOK, 1.05),
        ("direct", 0.0, NO_LOOK, 0.05),
        ("direct", 0.0, ONE_LOOK, 0.05),
        ("adaptive", 1.0, NO_LOOK, 1.55),
        ("adaptive", 1.0, ONE_LOOK, 1.55),
        ("adaptive", 0.0, NO_LOOK, 0.05),
        ("adaptive", 0.0, ONE_LOOK, 0.05),
        ("active", 1.0, NO_LOOK, 1.05),
        ("active", 1.0, ONE_LOOK, 1.55),
        ("active", 0.0, NO_LOOK, 0.05),
        ("active", 0.0, ONE_LOOK, 0.25),
        # a partial grade is a wrong answer to the matrix
        ("direct", 0.9, NO_LOOK, 0.95),
        ("adaptive", 0.5, ONE_LOOK, 0.55),
        ("active", 0.75, ONE_LOOK, 1.0),
        ("active", 0.75, NO_LOOK, 0.8),
        # four calls earn no more than one
        (
            "active",
            1.0,
            episode(called(uniform()), called(clip()), called(uniform(0, 90)), called(clip("a bus")), reply()),
            1.55,
        ),
        # a broken format takes everything, a right answer too
        ("direct", 1.0, episode(reply("<answer>B</answer>")), 0.0),
        ("active", 1.0, episode(called(uniform()), called(uniform()), reply()), 0.0),
        ("active", 0.0, episode(called(uniform()), end=EndReason.TURN_LIMIT), 0.0),
    ],
)
def test_worked_cases(kind: QuestionClass, acc: float, trajectory: Trajectory, expected: float) -> None:
    assert reward(trajectory, kind, acc) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("cell", "kind", "right", "used"),
    [
        (f"{kind}_{'right' if right else 'wrong'}_{'with' if used else 'without'}", kind, right, used)
        for kind in ("direct", "adaptive", "active")
        for right in (True, False)
        for used in (True, False)
    ],
)
def test_every_cell_is_a_weight_of_its_own(cell: str, kind: QuestionClass, right: bool, used: bool) -> None:
    weights = VideoBrainWeights(**{cell: 7.0})  # type: ignore[arg-type]
    assert weights.behaviour(kind, right=right, used_tools=used) == 7.0
    assert sum(value == 7.0 for value in asdict(weights).values()) == 1


@pytest.mark.parametrize(
    ("turns", "fault"),
    [
        # counts of opening and closing tags
        ([reply("<thinking>a</thinking></thinking><answer>B</answer>")], "unequal tags"),
        ([reply("<thinking>a<thinking>b</thinking><answer>B</answer>")], "unequal tags"),
        ([reply("<thinking>a</thinking><answer>A<answer>B</answer>")], "unequal tags"),
        ([called(uniform(), f"{THOUGHT}<tool_call><tool_call>{{}}</tool_call>"), reply()], "unequal tags"),
        # as many thoughts as calls and answers
        ([reply("<answer>B</answer>")], UNEVEN),
        ([called(uniform(), "<tool_call>{}</tool_call>"), reply()], UNEVEN),
        ([reply("<thinking>a</thinking><answer>A</answer><answer>B</answer>")], UNEVEN),
        ([reply("<thinking>a</thinking><thinking>b</thinking><answer>B</answer>")], UNEVEN),
        ([reply("<thinking>a<tool_call>{}</tool_call></thinking><answer>B</answer>")], UNEVEN),
        # our own: counts that are made up for elsewhere, blocks inside each other
        (
            [called(uniform(), "<tool_call>{}</tool_call>"), reply("<thinking>a</thinking>" + REPLY)],
            "blocks out of order",
        ),
        ([reply("<thinking>it is <answer>B</answer></thinking>")], "blocks out of order"),
        ([reply("<answer>B</answer><thinking>a</thinking>")], "blocks out of order"),
        ([reply("</thinking><thinking><answer>B</answer>")], "blocks out of order"),
        ([reply(REPLY + REPLY)], "blocks out of order"),
        # nothing empty
        ([reply("<thinking></thinking><answer>B</answer>")], "empty block"),
        ([reply("<thinking> \n</thinking><answer>B</answer>")], "empty block"),
        ([reply("<thinking>a</thinking><answer>\t</answer>", "")], "empty block"),
        ([called(uniform(), f"{THOUGHT}<tool_call> </tool_call>"), reply()], "empty block"),
        # a call that is no JSON
        (
            [Turn(f"{THOUGHT}<tool_call>{{name</tool_call>", Illegal("the call is not valid JSON"), 9), reply()],
            "unreadable call",
        ),
        # a known tool
        ([called({"name": "zoom", "arguments": {"start_frame": 1, "end_frame": 90}}), reply()], "unknown tool"),
        # integers, start before end
        ([called(uniform(10, 10)), reply()], "bad range"),
        ([called(uniform(11, 10)), reply()], "bad range"),
        ([called(uniform(1.5, 10)), reply()], "bad range"),
        ([called(uniform("1", "10")), reply()], "bad range"),
        ([called(clip(start=True)), reply()], "bad range"),
        ([called({"name": "clip_sample", "arguments": {"prompt": "a car"}}), reply()], "bad range"),
        # a prompt for clip_sample
        ([called(clip("")), reply()], "bad prompt"),
        ([called(clip("  ")), reply()], "bad prompt"),
        ([called(clip(None)), reply()], "bad prompt"),
        ([called(clip(["a car"])), reply()], "bad prompt"),
        # no duplicates: both ends within one frame
        ([called(uniform(100, 200)), called(uniform(100, 200)), reply()], "duplicate range"),
        ([called(uniform(100, 200)), called(uniform(101, 199)), reply()], "duplicate range"),
        ([called(uniform(100, 200)), called(clip()), called(uniform(99, 200)), reply()], "duplicate range"),
        # no duplicates: the same prompt, wherever
        ([called(clip("a car")), called(clip("a car")), reply()], "duplicate prompt"),
        ([called(clip("a car")), called(clip(" a car ", 50, 90)), reply()], "duplicate prompt"),
        # a call that was refused
        ([Turn(called(uniform()).text, called(uniform()).action, 9, illegal_calls=1), reply()], "refused call"),
    ],
)
def test_each_rule_of_the_gate_fails_alone(turns: list[Turn], fault: str) -> None:
    assert gate_fault(episode(*turns), 1) == fault


@pytest.mark.parametrize(
    "turns",
    [
        [reply()],
        [reply(" <thinking>a</thinking>\n<answer> B </answer> ")],
        [reply("<thinking>a < b, <b>bold</b>, {}</thinking><answer>B</answer>")],
        [called(uniform(100, 200)), called(uniform(102, 200)), reply()],  # one end two frames off
        [called(uniform(100, 200)), called(uniform(100, 198)), reply()],
        [called(clip("a car")), called(clip("a red car")), reply()],
        [called(clip("a car")), called(clip("A car")), reply()],  # exactly the same prompt only
        [called(uniform(100, 200)), called(clip("a car", 100, 200)), reply()],  # another tool
        [called(uniform(100, 200, note="x")), reply()],  # an argument too many
    ],
)
def test_what_passes(turns: list[Turn]) -> None:
    assert gate_fault(episode(*turns), 1) is None


@pytest.mark.parametrize("end", [end for end in EndReason if end is not EndReason.ANSWER])
def test_an_unanswered_episode_fails(end: EndReason) -> None:
    assert gate_fault(episode(called(uniform()), end=end), 1) == "no answer"
    assert gate_fault(episode(end=end), 1) == "no answer"


def test_the_margin_of_duplicates_is_a_setting() -> None:
    trajectory = episode(called(uniform(100, 200)), called(uniform(104, 197)), reply())
    assert gate_fault(trajectory, 3) is None
    assert gate_fault(trajectory, 4) == "duplicate range"
    assert gate_fault(episode(called(uniform(1, 9)), called(uniform(2, 9)), reply()), 0) is None


def test_terms_have_fixed_names_and_add_up() -> None:
    for trajectory, passed in ((ONE_LOOK, True), (ONE_LOOK, False)):
        score = videobrain_score(trajectory, "active", 0.3, passed, VideoBrainWeights())
        assert list(score.terms) == ["format", "acc", "behaviour"]
        assert sum(score.terms.values()) == score.reward
        assert score.format == float(passed)
    assert score.reward == score.acc == 0.0


def row(**extra: Any) -> VideoQA:
    return VideoQA(id="row-7", video="v", question="?", answer="B", options=("a", "b"), extra=extra)


def test_the_class_is_read_from_the_row() -> None:
    assert question_class(row(**{"class": "adaptive"})) == "adaptive"


@pytest.mark.parametrize(
    "extra", [{}, {"class": None}, {"class": ""}, {"class": "Direct"}, {"class": 1}, {"class": []}]
)
def test_a_row_without_a_class_is_named_with_its_field(extra: dict[str, Any]) -> None:
    with pytest.raises(RowError, match=r"row row-7: field 'extra_info\.class' must be one of"):
        question_class(row(**extra))


CALL = f"<tool_call>{json.dumps(clip())}</tool_call>"
TAGS = ["<thinking>", "</thinking>", "<tool_call>", "</tool_call>", "<answer>", "</answer>", "B", THOUGHT, CALL]
WELL_FORMED = re.compile(r"[^<]*<thinking>[^<]+</thinking>[^<]*<tool_call>[^<]+</tool_call>[^<]*")
actions: list[Action] = [Answer("B"), Illegal("x"), called(clip()).action]


@given(st.lists(st.tuples(st.lists(st.sampled_from(TAGS), max_size=6), st.sampled_from(actions)), max_size=3))
def test_only_well_formed_turns_pass(said: list[tuple[list[str], Action]]) -> None:
    turns = [Turn("".join(pieces), action, 1) for pieces, action in said]
    expected = len(turns) <= 1 and all(
        WELL_FORMED.fullmatch(turn.text) and isinstance(turn.action, Calls) for turn in turns
    )
    assert (gate_fault(episode(*turns, reply()), 1) is None) == expected  # two such calls have the same prompt


@pytest.mark.parametrize("unit", ["<thinking>", "</thinking>", "<thinking></thinking>", CALL])
def test_the_gate_is_linear(unit: str) -> None:
    def judge(times: int) -> None:
        assert gate_fault(episode(reply(unit * times + REPLY)), 1) is not None

    assert_linear(judge, 1_000, 8_000, growth=8.0)


def test_only_calls_that_were_carried_out_are_tool_use() -> None:
    refused = Turn(called(uniform()).text, called(uniform()).action, 9, illegal_calls=1)
    score = videobrain_score(episode(refused, reply()), "active", 0.0, True, VideoBrainWeights())
    assert score.terms["behaviour"] == 0.0
