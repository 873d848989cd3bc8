"""VideoBrain's episodes: what is shown, what calls do, when it ends, how it is graded."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.graders.judge import Judge, JudgeConfig
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.types.row import RowError, VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef
from tests.conftest import MemorySource
from tests.systems.videobrain.texts import (
    BASE,
    FIND,
    LOOK,
    REPLY,
    THOUGHT,
    Nearest,
    call,
    classed,
    run,
    score,
    seen,
    told,
)


class FixedJudge(Judge):
    """Gives one grade, and keeps what it was asked."""

    def __init__(self, grade: float = 1.0):
        super().__init__(JudgeConfig())
        self.fixed = grade
        self.asked: list[tuple[str, str, str, str]] = []

    async def grade(self, question: str, reference: str, candidate: str, scale: str = "binary") -> float:
        self.asked.append((question, reference, candidate, scale))
        return self.fixed


def test_opening_is_the_rules_then_question_and_labelled_frames(qa: VideoQA) -> None:
    system, user = run(BASE, qa, REPLY).opening
    assert (system.role, user.role) == ("system", "user")
    assert '"end_frame": 600, "prompt"' in str(system.parts[0])  # the template's {num_frames} is filled in
    assert user.parts[0] == "What colour flashes at 42 s?\nA. red\nB. green\nC. blue\nD. grey"
    # 16 of 600 frames: steps of 599 / 15 = 39.93, rounded
    frames = [part.index for part in user.parts if isinstance(part, FrameRef)]
    assert frames[:3] + frames[-2:] == [0, 40, 80, 559, 599]
    assert len(frames) == 16
    assert user.parts[1:4] == ("\nframe 0: ", user.parts[2], "\nframe 40: ")


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


def test_an_illegal_call_is_told_and_uses_up_a_turn(qa: VideoQA) -> None:
    broken = f"{THOUGHT}<tool_call>{{name: 1}}</tool_call>"
    short = call("uniform_sample", start_frame=10, end_frame=12)
    other = call("zoom", start_frame=10, end_frame=99)
    trajectory = run(BASE, qa, broken, short, other, LOOK, REPLY)
    assert trajectory.end is EndReason.ANSWER
    assert (trajectory.tool_calls, trajectory.illegal_calls, len(trajectory.turns)) == (1, 3, 5)
    assert told(trajectory, 0).startswith("Error: the call is not valid JSON.\n")
    assert told(trajectory, 1).startswith("Error: the range holds 2 frames, at least 8 are needed.\n")
    assert told(trajectory, 2).startswith("Error: there is no such tool")


@pytest.mark.parametrize(
    "text", [f"{THOUGHT}<tool_call>{{name: 1}}</tool_call>", call("uniform_sample", start_frame=600, end_frame=700)]
)
def test_an_illegal_call_can_end_the_episode(qa: VideoQA, text: str) -> None:
    trajectory = run(replace(BASE, illegal_call="end"), qa, text, REPLY)
    assert (trajectory.end, trajectory.illegal_calls, len(trajectory.turns)) == (EndReason.ILLEGAL, 1, 1)


def test_a_refused_call_takes_the_whole_reward(qa: VideoQA) -> None:
    short = call("uniform_sample", start_frame=10, end_frame=12)
    assert score(BASE, run(BASE, qa, short, LOOK, REPLY), classed(qa)).reward == 0.0
    assert score(BASE, run(BASE, qa, LOOK, REPLY), classed(qa)).reward == pytest.approx(1.55)


def test_the_fifth_turn_is_asked_for_the_answer(qa: VideoQA) -> None:
    looks = [call("uniform_sample", start_frame=start, end_frame=start + 50) for start in (0, 100, 200, 300)]
    trajectory = run(BASE, qa, *looks, REPLY)
    assert ["last turn" in told(trajectory, turn) for turn in range(4)] == [False, False, False, True]
    assert trajectory.end is EndReason.ANSWER
    # a refused fourth call is answered with the same request
    refused = run(BASE, qa, *looks[:3], call("zoom"), REPLY)
    assert "last turn" in told(refused, 3)


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


@pytest.mark.parametrize(("left", "system", "gone"), ONE_TOOL)
def test_the_tool_that_is_left_works_and_pays(qa: VideoQA, left: str, system: VideoBrain, gone: str) -> None:
    kept = LOOK if gone == FIND else FIND
    trajectory = run(system, qa, kept, REPLY, retriever=Nearest(300))
    assert (trajectory.tool_calls, trajectory.illegal_calls) == (1, 0)
    assert score(system, trajectory, classed(qa)).reward == pytest.approx(0.05 + 1.0 + 0.5)


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
