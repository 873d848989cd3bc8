"""VideoBrain: its grammar, its reward (gate * (0.05 + acc + behaviour)), its episodes."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.systems.videobrain.grammar import parse_turn
from agentic_video.systems.videobrain.reward import VideoBrainWeights, gate_fault, question_class, videobrain_score
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.row import QuestionClass, RowError, VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn
from tests.conftest import MemorySource
from tests.growth import assert_linear
from tests.systems import played
from tests.systems.played import FixedJudge, Nearest, ended, score, seen, told

THOUGHT = "<thinking>look</thinking>"
REPLY = "<thinking>seen</thinking><answer>B</answer>"
BASE = VideoBrain(max_width=64, max_height=64, answer_match="robust")


def call(name: str, **arguments: Any) -> str:
    return f"{THOUGHT}<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def run(system: VideoBrain, qa: VideoQA, *texts: str, source: MemorySource | None = None, **options: Any) -> Trajectory:
    return played.run(system, qa, source or MemorySource(), *texts, **options)


LOOK = call("uniform_sample", start_frame=410, end_frame=430)
FIND = call("clip_sample", start_frame=0, end_frame=600, prompt="a red car")


def classed(qa: VideoQA, name: str = "active") -> VideoQA:
    return replace(qa, extra={"class": name})


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
        ("<tool_call>[1]</tool_call>", Illegal("the call is not a JSON object")),
        ("<answer>B", NEITHER),
    ],
)
def test_reading_a_turn(text: str, action: Action) -> None:
    assert parse_turn(text) == action


UNEVEN = "thoughts don't equal calls and answers"


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


def reward(trajectory: Trajectory, kind: QuestionClass, acc: float) -> float:
    passed = gate_fault(trajectory, 1) is None
    return videobrain_score(trajectory, kind, acc, passed, VideoBrainWeights()).reward


ONE_LOOK = ended(called(uniform()), reply())
NO_LOOK = ended(reply())


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
            ended(called(uniform()), called(clip()), called(uniform(0, 90)), called(clip("a bus")), reply()),
            1.55,
        ),
        # a broken format takes everything, a right answer too
        ("direct", 1.0, ended(reply("<answer>B</answer>")), 0.0),
        ("active", 1.0, ended(called(uniform()), called(uniform()), reply()), 0.0),
        ("active", 0.0, ended(called(uniform()), end=EndReason.TURN_LIMIT), 0.0),
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
        ([reply("<thinking>a</thinking><answer>A<answer>B</answer>")], "unequal tags"),
        ([called(uniform(), f"{THOUGHT}<tool_call><tool_call>{{}}</tool_call>"), reply()], "unequal tags"),
        # as many thoughts as calls and answers
        ([reply("<answer>B</answer>")], UNEVEN),
        ([reply("<thinking>a</thinking><answer>A</answer><answer>B</answer>")], UNEVEN),
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
        ([called(uniform(1.5, 10)), reply()], "bad range"),
        ([called(clip(start=True)), reply()], "bad range"),
        ([called({"name": "clip_sample", "arguments": {"prompt": "a car"}}), reply()], "bad range"),
        # a prompt for clip_sample
        ([called(clip("")), reply()], "bad prompt"),
        ([called(clip(None)), reply()], "bad prompt"),
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
    assert gate_fault(ended(*turns), 1) == fault


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
    assert gate_fault(ended(*turns), 1) is None


def test_an_unanswered_episode_fails() -> None:
    assert gate_fault(ended(called(uniform()), end=EndReason.TURN_LIMIT), 1) == "no answer"
    assert gate_fault(ended(end=EndReason.ENGINE_ERROR), 1) == "no answer"


def test_the_margin_of_duplicates_is_a_setting() -> None:
    trajectory = ended(called(uniform(100, 200)), called(uniform(104, 197)), reply())
    assert gate_fault(trajectory, 3) is None
    assert gate_fault(trajectory, 4) == "duplicate range"
    assert gate_fault(ended(called(uniform(1, 9)), called(uniform(2, 9)), reply()), 0) is None


def test_terms_have_fixed_names_and_add_up() -> None:
    for trajectory, passed in ((ONE_LOOK, True), (ONE_LOOK, False)):
        score = videobrain_score(trajectory, "active", 0.3, passed, VideoBrainWeights())
        assert list(score.terms) == ["format", "acc", "behaviour"]
        assert sum(score.terms.values()) == score.reward
        assert score.format == float(passed)
    assert score.reward == score.acc == 0.0


def row_with(**extra: Any) -> VideoQA:
    return VideoQA(id="row-7", video="v", question="?", answer="B", options=("a", "b"), extra=extra)


@pytest.mark.parametrize("extra", [{}, {"class": "Direct"}, {"class": []}])
def test_a_row_without_a_class_is_named_with_its_field(extra: dict[str, Any]) -> None:
    with pytest.raises(RowError, match=r"row row-7: field 'extra_info\.class' must be one of"):
        question_class(row_with(**extra))


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
    assert (gate_fault(ended(*turns, reply()), 1) is None) == expected  # two such calls have the same prompt


@pytest.mark.parametrize("unit", ["<thinking>", "</thinking>", "<thinking></thinking>", CALL])
def test_the_gate_is_linear(unit: str) -> None:
    def judge(times: int) -> None:
        assert gate_fault(ended(reply(unit * times + REPLY)), 1) is not None

    assert_linear(judge, 1_000, 8_000, growth=8.0)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((1920, 1080), (640, 352)),  # 640x360, and 360 lies nearest to 352 = 11 * 32
        ((1080, 1920), (192, 352)),  # 202x360
        ((64, 64), (64, 64)),  # not enlarged
    ],
)
def test_frames_fit_the_box_in_multiples_of_32(qa: VideoQA, size: tuple[int, int], shown: tuple[int, int]) -> None:
    trajectory = run(VideoBrain(overview_frames=2), qa, REPLY, source=MemorySource(5.0, size=size))
    assert {(frame.width, frame.height) for frame in trajectory.frames} == {shown}


def test_uniform_sample_shows_eight_labelled_frames(qa: VideoQA) -> None:
    trajectory = run(BASE, qa, LOOK, REPLY)
    # 8 of the frames 410 to 429: steps of 19 / 7 = 2.71, rounded
    assert seen(trajectory, 0) == [410, 413, 415, 418, 421, 424, 426, 429]
    assert told(trajectory, 0).endswith("\nframe 426: \nframe 429: ")
    assert (trajectory.tool_calls, trajectory.illegal_calls, trajectory.end) == (1, 0, EndReason.ANSWER)


def test_released_numbers_are_cut(qa: VideoQA) -> None:
    trajectory = run(replace(BASE, frame_times="released"), qa, LOOK, REPLY)
    # steps of 599 / 15 = 39.93 and of 19 / 7 = 2.71
    overview = [part.index for part in trajectory.opening[1].parts if isinstance(part, FrameRef)]
    assert overview[:3] + overview[-2:] == [0, 39, 79, 559, 599]
    assert seen(trajectory, 0) == [410, 412, 415, 418, 420, 423, 426, 429]


def test_clip_sample_shows_the_four_best_in_order_of_time(qa: VideoQA) -> None:
    retriever = Nearest(301)
    trajectory = run(BASE, qa, FIND, REPLY, retriever=retriever)
    # candidates 599 / 127 = 4.717 apart; numbers 63 to 66 are 297.1, 301.9, 306.6 and 311.3, number 62 is 292.4
    assert seen(trajectory, 0) == [292, 297, 302, 307]
    [(prompt, candidates)] = retriever.asked
    assert prompt == "a red car"
    assert (len(candidates), candidates[0], candidates[-1]) == (128, 0, 599)


def test_clip_sample_keeps_to_its_range(qa: VideoQA) -> None:
    find = call("clip_sample", start_frame=100, end_frame=9999, prompt="x")
    assert seen(run(BASE, qa, find, REPLY, retriever=Nearest(0)), 0)[0] == 100
    assert seen(run(BASE, qa, find, REPLY, retriever=Nearest(9999)), 0)[-1] == 599


def test_without_a_retrieval_model_a_search_is_illegal(qa: VideoQA) -> None:
    trajectory = run(replace(BASE, illegal_call="told"), qa, FIND, REPLY)
    assert trajectory.turns[0].illegal_calls == 1
    assert "there is no retrieval model here" in str(trajectory.turns[0].observation)
    assert run(replace(BASE, illegal_call="end"), qa, FIND, REPLY).end is EndReason.ILLEGAL


@pytest.mark.parametrize(("num_frames", "candidates"), [(20_000, 128), (20_001, 256)])
def test_long_videos_have_more_candidates(qa: VideoQA, num_frames: int, candidates: int) -> None:
    retriever = Nearest()
    source = MemorySource(float(num_frames), fps=1.0)
    run(BASE, qa, FIND, REPLY, source=source, retriever=retriever)
    assert len(retriever.asked[0][1]) == candidates


@pytest.mark.parametrize(
    "text", [f"{THOUGHT}<tool_call>{{name: 1}}</tool_call>", call("uniform_sample", start_frame=600, end_frame=700)]
)
def test_an_illegal_call_can_end_the_episode(qa: VideoQA, text: str) -> None:
    trajectory = run(replace(BASE, illegal_call="end"), qa, text, REPLY)
    assert (trajectory.end, trajectory.illegal_calls, len(trajectory.turns)) == (EndReason.ILLEGAL, 1, 1)


def test_multiple_choice_is_judged_with_its_options(qa: VideoQA) -> None:
    judge, judged = FixedJudge(1.0), replace(BASE, answer_match="judge")
    assert score(judged, run(judged, qa, REPLY), classed(qa, "direct"), judge).reward == pytest.approx(1.55)
    question = "What colour flashes at 42 s?\nA. red\nB. green\nC. blue\nD. grey"
    assert judge.asked == [(question, "B. green", "B", "binary")]


def test_open_ended_answers_get_a_partial_grade(qa: VideoQA) -> None:
    judge = FixedJudge(0.75)
    row = replace(classed(qa), answer="a green one", answer_type="open_ended", options=())
    # 0.05 + 0.75 + 0.2: a tool was used, the answer isn't fully right
    assert score(BASE, run(BASE, row, LOOK, REPLY), row, judge).reward == pytest.approx(1.0)
    assert judge.asked == [(row.question, "a green one", "B", "unit")]


def test_a_broken_format_is_not_graded(qa: VideoQA) -> None:
    judge, judged = FixedJudge(1.0), replace(BASE, answer_match="judge")
    result = score(judged, run(judged, qa, "<answer>B</answer>"), classed(qa), judge)
    assert (result.reward, result.acc, result.format, judge.asked) == (0.0, 0.0, 0.0, [])


ONE_TOOL = [
    ("uniform_sample", replace(BASE, clip_sample=False), FIND),
    ("clip_sample", replace(BASE, uniform_sample=False), LOOK),
]
"""Ablations of Table 3: the tool that is left, the system, a call to the one that is gone."""


@pytest.mark.parametrize(("left", "system", "gone"), ONE_TOOL)
@pytest.mark.parametrize("prompt", ["videobrain", "videobrain_short"])
def test_instructions_name_only_the_tool_that_is_left(
    qa: VideoQA, left: str, system: VideoBrain, gone: str, prompt: str
) -> None:
    whole = str(run(replace(BASE, prompt=prompt), qa, REPLY).opening[0].parts[0])
    assert "uniform_sample" in whole and "clip_sample" in whole
    shown = str(run(replace(system, prompt=prompt), qa, REPLY).opening[0].parts[0])
    other = {"uniform_sample": "clip_sample", "clip_sample": "uniform_sample"}[left]
    assert left in shown and other not in shown and "{" not in shown.replace('{"', "")


@pytest.mark.parametrize(("left", "system", "gone"), ONE_TOOL)
def test_a_call_to_the_tool_that_is_gone_is_refused_and_fails_the_gate(
    qa: VideoQA, left: str, system: VideoBrain, gone: str
) -> None:
    found = Nearest(300)
    trajectory = run(system, qa, gone, REPLY, retriever=found)
    assert (trajectory.tool_calls, trajectory.illegal_calls, found.asked) == (0, 1, [])
    assert left in told(trajectory, 0) and not seen(trajectory, 0)
    assert score(system, trajectory, classed(qa)).reward == 0
    assert score(BASE, run(BASE, qa, gone, REPLY, retriever=found), classed(qa)).reward == pytest.approx(1.55)
    kept = run(system, qa, LOOK if gone == FIND else FIND, REPLY, retriever=Nearest(300))
    assert score(system, kept, classed(qa)).reward == pytest.approx(0.05 + 1.0 + 0.5)


def test_a_system_without_any_tool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"uniform_sample and clip_sample"):
        VideoBrain(uniform_sample=False, clip_sample=False)
    own = tmp_path / "own.txt"
    own.write_text("Call uniform_sample or clip_sample.")
    VideoBrain(prompt=str(own))
    with pytest.raises(ValueError, match="clip_sample is off"):
        VideoBrain(prompt=str(own), clip_sample=False)


UNPAIRED = THOUGHT + REPLY
"""Two thoughts in one turn: the gate's counts differ."""


@pytest.mark.parametrize(
    ("texts", "kind", "gated", "free"),
    [
        # gate off: accuracy 1.0 and behaviour, nothing for the format
        ((REPLY,), "direct", 1.55, 1.5),
        ((UNPAIRED,), "direct", 0.0, 1.5),
        ((LOOK, LOOK, REPLY), "active", 0.0, 1.5),  # the same call again
        ((LOOK, LOOK, REPLY.replace(">B<", ">A<")), "active", 0.0, 0.2),
        ((LOOK, "no answer"), "active", 0.0, 0.2),  # wrong, with a tool
        (("no answer",), "active", 0.0, 0.0),
    ],
)
def test_without_the_gate_the_format_is_neither_checked_nor_paid(
    qa: VideoQA, texts: tuple[str, ...], kind: str, gated: float, free: float
) -> None:
    trajectory = run(BASE, qa, *texts)
    assert score(BASE, trajectory, classed(qa, kind)).reward == pytest.approx(gated)
    ungated = replace(BASE, format_gate=False)
    assert score(ungated, run(ungated, qa, *texts), classed(qa, kind)).reward == pytest.approx(free)


@pytest.mark.parametrize(
    ("unclassed", "without", "with_tool"),
    [("none", 1.05, 1.05), ("direct", 1.55, 1.05), ("adaptive", 1.55, 1.55), ("active", 1.05, 1.55)],
)
def test_rewards_of_rows_without_a_class(qa: VideoQA, unclassed: str, without: float, with_tool: float) -> None:
    system = replace(BASE, unclassed=unclassed)  # type: ignore[arg-type]
    assert score(system, run(system, qa, REPLY), qa).reward == pytest.approx(without)
    assert score(system, run(system, qa, LOOK, REPLY), qa).reward == pytest.approx(with_tool)
    # a row's own class goes before it, and a wrong one is wrong
    assert score(system, run(system, qa, REPLY), classed(qa, "direct")).reward == pytest.approx(1.55)
    with pytest.raises(RowError):
        system.needs(classed(qa, "easy"))
