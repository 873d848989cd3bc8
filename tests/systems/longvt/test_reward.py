"""Worked cases of LongVT's reward: R_acc + R_fmt + R_time, and the rewards that it is compared with."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.systems.longvt.reward import LongVTWeights, format_ok, longvt_score, time_reward
from agentic_video.types.action import Answer, Calls, ToolCall
from agentic_video.types.row import Interval, VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn
from tests.systems.longvt.texts import LOOK, REPLY, call

TURN = Turn(LOOK, Calls((ToolCall("crop_video", {}),)), 9, legal_calls=1, observation=("done",))


def asked(*windows: Interval, answer_type: str = "open_ended") -> VideoQA:
    return VideoQA("q", "v", "What?", "a cat", answer_type, windows=windows)  # type: ignore[arg-type]


def episode(crop: Sequence[float] | None, turns: int = 1) -> Trajectory:
    notes = {} if crop is None else {"last_look": list(crop)}
    looks = (TURN,) * (turns if crop else 0)
    return Trajectory("q", "longvt", (), (*looks, Turn(REPLY, Answer("B"), 5)), EndReason.ANSWER, notes=notes)


@pytest.mark.parametrize(
    ("crop", "windows", "iou", "recall"),
    [
        ((10, 20), [(10, 20)], 1.0, 1.0),
        ((10, 20), [(15, 25)], 5 / 15, 5 / 10),
        ((0, 100), [(40, 50)], 0.1, 1.0),  # the whole video: recall is no measure of aim
        ((42, 44), [(40, 50)], 0.2, 0.2),
        ((0, 10), [(10, 20)], 0.0, 0.0),  # they touch
        ((0, 10), [(50, 60)], 0.0, 0.0),
        ((10, 20), [(0, 5), (12, 20)], 0.8, 1.0),  # of several windows the one that it fits best
        ((10, 20), [], 0.0, 0.0),  # no window
        ((10, 20), [(15, 15)], 0.0, 0.0),  # an empty window
        (None, [(10, 20)], 0.0, 0.0),  # no crop
    ],
)
def test_rewards_of_crops(crop: Sequence[float] | None, windows: list[Interval], iou: float, recall: float) -> None:
    assert time_reward(episode(crop), asked(*windows), "iou") == pytest.approx(iou)
    assert time_reward(episode(crop), asked(*windows), "recall") == pytest.approx(recall)


@pytest.mark.parametrize("kind", ["interval", "intervals"])
def test_an_answer_that_is_an_interval_is_paid_once(kind: str) -> None:
    assert time_reward(episode((10, 20)), asked((10.0, 20.0), answer_type=kind), "iou") == 0.0


PUBLISHED = LongVTWeights()
RECALL_OR_IOU = (1.0, 0.5)
TOOL = LongVTWeights(time=0.0, tool=1.0)
NEITHER = LongVTWeights(acc=0.8, format=0.2, time=0.0)


@pytest.mark.parametrize(
    ("weights", "crop", "acc", "fmt", "time", "reward"),
    [
        (PUBLISHED, (1, 2), 1.0, 1.0, 0.5, 2.5),
        (PUBLISHED, (1, 2), 0.5, 1.0, 0.5, 2.0),
        (PUBLISHED, (1, 2), 0.0, 0.0, 1.0, 1.0),  # a crop is paid for without a right answer
        (PUBLISHED, None, 1.0, 1.0, 0.0, 2.0),
        (TOOL, (1, 2), 1.0, 1.0, 0.5, 3.0),
        (TOOL, (1, 2), 0.5, 0.0, 0.0, 1.5),  # half right is enough for the bonus
        (TOOL, (1, 2), 0.4, 1.0, 1.0, 1.4),
        (TOOL, None, 1.0, 1.0, 0.0, 2.0),  # no crop, no bonus
        (NEITHER, (1, 2), 1.0, 1.0, 1.0, 1.0),
        (NEITHER, (1, 2), 0.5, 0.0, 1.0, 0.4),
    ],
)
def test_worked_cases(
    weights: LongVTWeights, crop: Sequence[float] | None, acc: float, fmt: float, time: float, reward: float
) -> None:
    score = longvt_score(episode(crop), acc, fmt, time, weights)
    assert score.reward == pytest.approx(reward) == pytest.approx(sum(score.terms.values()))
    assert (score.acc, score.format) == (acc, fmt)


@pytest.mark.parametrize(
    "turns",
    [
        (REPLY,),
        (LOOK, REPLY),
        (LOOK,) * 4 + (REPLY,),
        ("  " + REPLY + "\n",),
        ("<think>a</think>\n\n<answer>B</answer>",),
        (LOOK, "so <think>a</think> then <answer>B</answer>"),  # text between tags, after a call
        ("<think></think>" + call(), "<think></think><answer></answer>"),
    ],
)
def test_well_formed(turns: tuple[str, ...]) -> None:
    assert format_ok(turns)


@pytest.mark.parametrize(
    "turns",
    [
        (),
        ("",),
        ("<answer>B</answer>",),
        ("B",),
        ("<think>a</think>",),
        ("<think>a</think> so <answer>B</answer>",),  # text between the two, without a call
        ("well <think>a</think><answer>B</answer>",),  # it starts with the thought
        (REPLY + " indeed",),  # and ends with the answer
        (REPLY + REPLY,),
        ("<think>a</think><answer>A</answer><answer>B</answer>",),
        ("<think>a</think><think>b</think><answer>B</answer>",),
        ("<think>a<answer>B</answer></think>",),
        ("<think>a</think><answer>B",),
        ("</think><think><answer>B</answer>",),
        (LOOK,),  # no answer
        (LOOK, "<answer>B</answer>"),  # no thought after the call
        (LOOK + call(), REPLY),  # two calls in a turn: no thought between them
        (call(), REPLY),  # no thought before the call
        (LOOK + REPLY, REPLY),  # an answer next to a call
        ("<think>" + call() + "</think>", REPLY),  # a call inside a thought
        (LOOK.replace("</tool_call>", ""), REPLY),
        ("<think>a</think><tool_call>{}</tool_call><thi", "nk>b</think><answer>B</answer>"),  # a tag over two turns
    ],
)
def test_not_well_formed(turns: tuple[str, ...]) -> None:
    assert not format_ok(turns)


TAGS = [f"<{close}{name}>" for name in ("think", "tool_call", "answer") for close in ("", "/")]


@given(st.lists(st.lists(st.sampled_from([*TAGS, "x", " "]), max_size=8).map("".join), max_size=4))
def test_what_is_well_formed_has_one_answer_at_its_end(turns: list[str]) -> None:
    if format_ok(turns):
        whole = "".join(turns).strip()
        assert whole.count("<answer>") == whole.count("</answer>") == 1 and whole.endswith("</answer>")
        assert whole.count("<think>") == whole.count("</think>") == whole.count("<tool_call>") + 1
