"""LongVT: its grammar, its reward (R_acc + R_fmt + R_time, and what it is compared with), its episodes."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.graders.judge import Judge
from agentic_video.systems.longvt.grammar import parse_turn
from agentic_video.systems.longvt.reward import LongVTWeights, format_ok, longvt_score, time_reward
from agentic_video.systems.longvt.system import LongVT
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.message import text_of
from agentic_video.types.row import Interval, VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import ClipRef, EndReason, Trajectory, Turn
from tests.conftest import MemorySource
from tests.systems.played import FixedJudge, run, score, times


def call(start: object = 41, end: object = 43, path: str = '"memory"') -> str:
    arguments = f'{{"video_path": {path}, "start_time": {start}, "end_time": {end}}}'
    return f'<tool_call>{{"name": "crop_video", "arguments": {arguments}}}</tool_call>'


LOOK = "<think>near 42</think>" + call()
REPLY = "<think>seen</think><answer>B</answer>"
SMALL = LongVT(overview_max_frames=6, min_pixels=784, max_pixels=784, crop_max_frames=16, max_images=96)


def crop(start: object = 41, end: object = 43) -> ToolCall:
    return ToolCall("crop_video", {"video_path": "memory", "start_time": start, "end_time": end})


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (LOOK, Calls((crop(),))),
        (LOOK + "\n" + call(1, 2.5), Calls((crop(), crop(1, 2.5)))),
        (REPLY, Answer("B")),
        ("<answer> A </answer> no, <answer> B </answer>", Answer("B")),
        ("<answer></answer>", Answer("")),
        # a call is carried out whatever else the turn says, and wherever it stands
        (REPLY + LOOK, Calls((crop(),))),
        (LOOK + REPLY, Calls((crop(),))),
        (f"<think>{call()}</think><answer>B</answer>", Calls((crop(),))),
        # what a call lacks, or may not be, the tool says
        (call('"x"', "null"), Calls((crop("x", None),))),
        ("<answer>B", Illegal("neither a call nor an answer")),
        ("</tool_call>", Illegal("neither a call nor an answer")),
        (LOOK.replace("</tool_call>", ""), Illegal("a call has no end")),
        (call() + "<tool_call>", Illegal("a call has no end")),
        (call().replace("crop_video", "shell"), Illegal("there is no such tool, only crop_video")),
        # one that can't be read spoils the others
        (call() + "<tool_call>crop_video(1, 2)</tool_call>", Illegal("the call is not valid JSON")),
        (call("[1]"), Illegal("an argument must be a number or a text")),
        ('<tool_call>{"name": "crop_video"}</tool_call>', Illegal("the call has no arguments")),
        ('<tool_call>{"tool": "crop_video", "arguments": {}}</tool_call>', Illegal("the call has no name")),
    ],
)
def test_reading_a_turn(text: str, action: Action) -> None:
    assert parse_turn(text) == action


CROPPED = Turn(LOOK, Calls((ToolCall("crop_video", {}),)), 9, legal_calls=1, observation=("done",))


def row_of(*windows: Interval, answer_type: str = "open_ended") -> VideoQA:
    return VideoQA("q", "v", "What?", "a cat", answer_type, windows=windows)  # type: ignore[arg-type]


def noted(crop: Sequence[float] | None, turns: int = 1) -> Trajectory:
    notes = {} if crop is None else {"last_look": list(crop)}
    looks = (CROPPED,) * (turns if crop else 0)
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
    assert time_reward(noted(crop), row_of(*windows), "iou") == pytest.approx(iou)
    assert time_reward(noted(crop), row_of(*windows), "recall") == pytest.approx(recall)


@pytest.mark.parametrize("kind", ["interval", "intervals"])
def test_an_answer_that_is_an_interval_is_paid_once(kind: str) -> None:
    assert time_reward(noted((10, 20)), row_of((10.0, 20.0), answer_type=kind), "iou") == 0.0


PUBLISHED = LongVTWeights()
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
    score = longvt_score(noted(crop), acc, fmt, time, weights)
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
        ("<answer>B</answer>",),
        ("<think>a</think> so <answer>B</answer>",),  # text between the two, without a call
        ("well <think>a</think><answer>B</answer>",),  # it starts with the thought
        (REPLY + " indeed",),  # and ends with the answer
        (REPLY + REPLY,),
        ("<think>a</think><answer>A</answer><answer>B</answer>",),
        ("<think>a<answer>B</answer></think>",),
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


def scored(trajectory: Trajectory, qa: VideoQA, system: LongVT = SMALL, judge: Judge | None = None) -> Score:
    return score(system, trajectory, qa, judge)


# What is shown first


def test_the_first_view_may_be_one_clip_and_a_crop_is_images_then_too(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(replace(SMALL, frames_as="video"), qa, source, LOOK, REPLY)
    clip, asked = trajectory.opening[1].parts
    assert isinstance(clip, ClipRef) and len(clip.frames) == 6 and isinstance(asked, str)
    assert times(trajectory) == [41.0, 43.0]


def test_the_tool_is_described_as_json(qa: VideoQA, source: MemorySource) -> None:
    said = text_of(run(SMALL, qa, source, REPLY).opening[0].parts)  # type: ignore[arg-type]
    schema = json.loads(said.partition("<tools>\n")[2].partition("\n</tools>")[0])
    assert schema["function"]["name"] == "crop_video"
    assert schema["function"]["parameters"]["required"] == ["video_path", "start_time", "end_time"]
    example = json.loads(said.partition("<tool_call>{")[2].partition("</tool_call>")[0].join(("{", "")))
    assert example["arguments"]["video_path"] == "memory"
    assert "4 times" in said and "{" not in said.replace(json.dumps(schema), "").replace(json.dumps(example), "")


@pytest.mark.parametrize(("shown", "named"), [("path", "/films/a b/é.mp4"), ("name", "é.mp4")])
def test_the_video_may_be_named_by_its_file_alone(qa: VideoQA, source: MemorySource, shown: str, named: str) -> None:
    system, asked = replace(SMALL, video_path=shown), replace(qa, video="/films/a b/é.mp4")
    trajectory = run(system, asked, source, "<think>a</think>" + call(path=json.dumps(named)), REPLY)
    assert trajectory.tool_calls == 1
    assert str(trajectory.opening[1].parts[-1]).endswith(f" {named}")
    assert f'"video_path": "{named}"' in text_of(trajectory.opening[0].parts)  # type: ignore[arg-type]
    refused = run(system, asked, source, "<think>a</think>" + call(path='"/etc/passwd"'), REPLY)
    assert (refused.tool_calls, refused.illegal_calls, refused.end) == (0, 1, EndReason.ANSWER)


def test_or_not_at_all(qa: VideoQA, source: MemorySource) -> None:
    bare = (
        '<think>a</think><tool_call>{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 3}}</tool_call>'
    )
    system = replace(SMALL, video_path="none")
    for text in (bare, LOOK):  # what it says of a path isn't looked at
        trajectory = run(system, qa, source, text, REPLY)
        assert trajectory.tool_calls == 1
    assert not any(
        "video_path" in text_of(message.parts) or "memory" in text_of(message.parts) for message in trajectory.opening
    )  # type: ignore[arg-type]


def test_without_tools_none_is_spoken_of(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL.direct(), qa, source, REPLY)  # type: ignore[arg-type]
    told = "".join(text_of(message.parts) for message in trajectory.opening)  # type: ignore[misc]
    assert "tool" not in told and "crop" not in told and "What colour" in told and "memory" not in told
    assert trajectory.end is EndReason.ANSWER


# What calls do


def test_a_crop_has_a_frame_at_least_and_so_many_at_most(qa: VideoQA) -> None:
    source = MemorySource(600.0)
    assert times(run(SMALL, qa, source, "<think>a</think>" + call(10, 10.5), REPLY)) == [10.0]
    assert len(times(run(SMALL, qa, source, "<think>a</think>" + call(0, 600), REPLY))) == 16
    assert len(times(run(LongVT(), qa, source, "<think>a</think>" + call(0, 600), REPLY))) == 128


def test_several_calls_of_a_turn_are_answered_in_order(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, "<think>a</think>" + call(50, 52) + call(9, 3) + call(10, 11), REPLY)
    assert times(trajectory) == [50.0, 52.0, 10.0]
    texts = "|".join(part for part in trajectory.turns[0].observation if isinstance(part, str))
    told = "These are the frames of the stretch, in order.\n</tool_response>"
    assert texts == (
        f"<tool_response>\n|{told}|\n<tool_response>\n|Error: end_time must be after start_time.\n</tool_response>|"
        f"\n<tool_response>\n|{told}"
    )
    assert (trajectory.tool_calls, trajectory.illegal_calls, trajectory.end) == (2, 1, EndReason.ANSWER)


def test_an_end_behind_the_video_s_may_be_clamped(qa: VideoQA, source: MemorySource) -> None:
    system = replace(SMALL, crop_past_end="clamped")
    trajectory = run(system, qa, source, "<think>a</think>" + call(58, 99), REPLY)
    assert times(trajectory) == [58.0, 59.9]
    assert trajectory.notes == {"last_look": [58.0, 60.0]}


@pytest.mark.parametrize(
    "text", ["<tool_call>{</tool_call>", LOOK + "<tool_call>", call().replace("crop_video", "shell"), "I don't know."]
)
def test_a_turn_that_can_t_be_read_ends_the_episode(qa: VideoQA, source: MemorySource, text: str) -> None:
    trajectory = run(SMALL, qa, source, text, REPLY)
    assert (trajectory.end, trajectory.illegal_calls, len(trajectory.turns)) == (EndReason.ILLEGAL, 1, 1)


# When it ends


def test_the_reply_to_the_last_call_ends_the_episode(qa: VideoQA, source: MemorySource) -> None:
    # two and three: five in all, in the second of five turns
    trajectory = run(SMALL, qa, source, "<think>a</think>" + call() * 2, "<think>a</think>" + call(1, 3) * 3, REPLY)
    assert (trajectory.end, len(trajectory.turns)) == (EndReason.TURN_LIMIT, 2)
    assert (trajectory.tool_calls, trajectory.turns[1].observation) == (5, ())
    assert trajectory.notes == {"last_look": [1.0, 3.0]}


def test_refused_calls_count_among_the_five(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, "<think>a</think>" + call(9, 3) * 4, LOOK, REPLY)
    assert (trajectory.end, trajectory.tool_calls, trajectory.illegal_calls) == (EndReason.TURN_LIMIT, 1, 4)


def test_calls_beyond_the_fifth_are_not_carried_out(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, "<think>a</think>" + call(1, 3) * 5 + call(7, 9) * 300)
    assert (trajectory.tool_calls, trajectory.illegal_calls) == (5, 300)
    assert trajectory.notes == {"last_look": [1.0, 3.0]}
    assert source.requested == 6 + 5 * 2


def test_the_call_of_the_last_turn_is_carried_out_and_counts(qa: VideoQA, source: MemorySource) -> None:
    asked = replace(qa, windows=((41.0, 43.0),))
    miss = "<think>a</think>" + call(1, 3)
    trajectory = run(SMALL, asked, source, miss, miss, miss, miss, LOOK)
    assert (trajectory.end, trajectory.tool_calls) == (EndReason.TURN_LIMIT, 5)
    assert scored(trajectory, asked).terms == {"acc": 0.0, "format": 0.0, "time": 1.0, "tool": 0.0}
    # and one that is refused leaves the one before it
    trajectory = run(SMALL, asked, source, miss, miss, miss, LOOK, "<think>a</think>" + call(9, 3))
    assert scored(trajectory, asked).terms["time"] == 1.0


def test_a_crop_that_doesn_t_fit_ends_the_episode_and_doesn_t_count(qa: VideoQA, source: MemorySource) -> None:
    asked = replace(qa, windows=((0.0, 16.0),))
    system = replace(SMALL, max_images=12)
    trajectory = run(system, asked, source, LOOK, "<think>a</think>" + call(0, 16), REPLY)
    assert (trajectory.end, trajectory.notes) == (EndReason.IMAGE_BUDGET, {"last_look": [41.0, 43.0]})
    assert trajectory.turns[1].observation == ()


# What it earns


def test_acc_format_and_time_add_up(qa: VideoQA, source: MemorySource) -> None:
    asked = replace(qa, windows=((42.0, 44.0),))
    # a second of three
    assert scored(run(SMALL, asked, source, LOOK, REPLY), asked).reward == pytest.approx(1.0 + 1.0 + 1 / 3)
    # half of the window
    recall = replace(SMALL, time_reward="recall")
    assert scored(run(recall, asked, source, LOOK, REPLY), asked, recall).reward == pytest.approx(1.0 + 1.0 + 0.5)
    wrong = REPLY.replace("B", "A")
    assert scored(run(SMALL, asked, source, LOOK, wrong), asked).reward == pytest.approx(1.0 + 1 / 3)
    assert scored(run(SMALL, asked, source, REPLY), asked).reward == pytest.approx(2.0)


def test_the_last_crop_counts_and_only_one_that_was_carried_out(qa: VideoQA, source: MemorySource) -> None:
    asked = replace(qa, windows=((41.0, 43.0),))
    away, refused = "<think>a</think>" + call(1, 3), "<think>a</think>" + call(41, 43, '"other"')
    assert scored(run(SMALL, asked, source, LOOK, away, REPLY), asked).terms["time"] == 0.0
    assert scored(run(SMALL, asked, source, away, LOOK, REPLY), asked).terms["time"] == 1.0
    # in the released code the text of a refused call is paid as well
    assert scored(run(SMALL, asked, source, away, refused, REPLY), asked).terms["time"] == 0.0
    assert scored(run(SMALL, asked, source, refused, REPLY), asked).terms["time"] == 0.0
    # of one turn, too
    assert scored(run(SMALL, asked, source, away + call(), REPLY), asked).terms["time"] == 1.0


def open_ended(qa: VideoQA) -> VideoQA:
    return replace(qa, options=(), answer="a green square", answer_type="open_ended")


def test_an_empty_answer_is_wrong_without_a_judge(qa: VideoQA, source: MemorySource) -> None:
    asked, judge = open_ended(qa), FixedJudge(1.0)
    trajectory = run(SMALL, asked, source, "<think>a</think><answer> </answer>")
    score = scored(trajectory, asked, judge=judge)
    assert (score.acc, score.format, judge.asked) == (0.0, 1.0, [])


@pytest.mark.parametrize(("characters", "reward"), [(999, 2.0), (1_000, 0.0)])
def test_a_long_answer_earns_nothing(qa: VideoQA, source: MemorySource, characters: int, reward: float) -> None:
    asked, judge = open_ended(qa), FixedJudge(1.0)
    trajectory = run(SMALL, asked, source, f"<think>a</think><answer>{'x' * characters}</answer>")
    score = scored(trajectory, asked, judge=judge)
    assert (score.reward, score.acc, len(judge.asked)) == (reward, reward / 2, int(reward > 0))
