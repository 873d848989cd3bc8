"""TimeSearch-R: its grammar, reward (format + acc / 2 + completeness / 2), previews, searches and self-verification."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentic_video.graders.judge import Judge, JudgeConfig
from agentic_video.systems.timesearch import TimeSearch, TimeSearchWeights
from agentic_video.systems.timesearch.grammar import parse_turn
from agentic_video.systems.timesearch.reward import accuracy, format_ok, mixes, timesearch_score
from agentic_video.systems.timesearch.system import VERIFIED, searched
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.message import AsideRequest, text_of
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import ClipRef, EndReason, Trajectory, Turn
from tests.conftest import MemorySource
from tests.systems import played
from tests.systems.played import ended, score, seen, told
from tests.tools.test_base import Slides

REPLY = "<think>seen</think><answer>B</answer>"
BASE = TimeSearch(overview_max_frames=8, min_frame_tokens=1, seek_min_tokens=1)


THOUGHT = "<think>look</think>"


def call(name: str = "seek_video_frames", **arguments: Any) -> str:
    return f"{THOUGHT}<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


LOOK = call(start_time=41, end_time=43)


class Directions:
    """A retriever whose frames and text are directions in the plane, by their degrees; keeps what it was asked."""

    def __init__(self, text: float, frames: Mapping[int, float]):
        self.text, self.frames = text, frames
        self.asked: list[tuple[str, list[int]]] = []

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        raise NotImplementedError

    async def acompare(self, path: str, indices: Sequence[int], prompt: str) -> tuple[np.ndarray, np.ndarray]:
        self.asked.append((prompt, list(indices)))
        angles = np.radians([self.frames[index] for index in indices])
        return np.cos(angles - np.radians(self.text)), np.cos(angles[:, None] - angles)


LOOKS = Calls((ToolCall("seek_video_frames", {"start_time": 41, "end_time": 43}),))
NEITHER = Illegal("neither a call nor an answer")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (LOOK, LOOKS),
        (LOOK + "\n and more", LOOKS),
        (REPLY, Answer("B")),
        # the first one counts, whichever it is
        (LOOK + REPLY, LOOKS),
        (REPLY + LOOK, Answer("B")),
        (LOOK + LOOK.replace("41", "11"), LOOKS),
        ("<answer>A</answer><answer>B</answer>", Answer("A")),
        # one that isn't closed opens nothing
        ("<tool_call>{} <answer> B </answer>", Answer("B")),
        ("<answer>B", NEITHER),
        ("<tool_call>{}", NEITHER),
        # a thought is no shelter (released code)
        ("<think><answer>B</answer></think>", Answer("B")),
        ("<answer></answer>", Answer("")),
    ],
)
def test_reading_a_turn(text: str, action: Action) -> None:
    assert parse_turn(text) == action


CHOICE = VideoQA("c", "v", "Which?", "B", options=("red", "green", "blue"))
OPEN = VideoQA("o", "v", "What?", "a red car", answer_type="open_ended")
ORDER = VideoQA("s", "v", "In which order?", "(b)(a)(c)", answer_type="open_ended", extra={"type": "sequence"})
WHEN = VideoQA("w", "v", "When?", "12 - 22", answer_type="interval", windows=((12.0, 22.0),))


def looked(text: str = LOOK) -> Turn:
    return Turn(text, Calls((ToolCall("seek_video_frames", {}),)), 9, legal_calls=1)


def reply(text: str = REPLY, answer: str = "B") -> Turn:
    return Turn(text, Answer(answer), 9)


@pytest.mark.parametrize(
    ("trajectory", "acc", "verified", "expected"),
    [
        (ended(looked(), reply()), 1.0, 1.0, 2.0),
        (ended(looked(), reply()), 1.0, 0.0, 1.5),
        # a wrong answer earns no completeness, whatever was found
        (ended(looked(), reply()), 0.0, 1.0, 1.0),
        # grades that aren't whole: more than a half counts
        (ended(looked(), reply()), 0.6, 0.6, 1.0 + 0.3 + 0.5),
        (ended(looked(), reply()), 0.5, 1.0, 1.0 + 0.25),
        (ended(looked(), reply()), 1.0, 0.5, 1.0 + 0.5),
        # a broken form takes its own term only
        (ended(looked(), reply("<answer>B</answer>")), 1.0, 1.0, 1.0),
        (ended(looked(), end=EndReason.TURN_LIMIT), 0.0, 0.0, 0.0),
    ],
)
def test_worked_cases(trajectory: Trajectory, acc: float, verified: float, expected: float) -> None:
    result = timesearch_score(trajectory, acc, verified, TimeSearchWeights())
    assert result.reward == pytest.approx(expected) == sum(result.terms.values())
    assert result.acc == acc


@pytest.mark.parametrize(
    "turns",
    [
        [reply()],
        [looked(), looked(), reply()],
        [looked(" <think>a</think>\n<tool_call>{}</tool_call> "), reply()],
        # an unreadable call is one in form
        [Turn("<think>a</think><tool_call>?</tool_call>", Illegal("no JSON"), 9, illegal_calls=1), reply()],
        [reply("<think></think><answer></answer>", "")],
    ],
)
def test_good_form(turns: list[Turn]) -> None:
    assert format_ok(ended(*turns))


@pytest.mark.parametrize(
    "turns",
    [
        [reply("<answer>B</answer>")],
        [reply("<think>a</think>B <answer>B</answer>")],
        [reply("so <think>a</think><answer>B</answer>")],
        [reply("<think>a</think><think>b</think><answer>B</answer>")],
        [reply("<answer>B</answer><think>a</think>")],
        [reply("<think>a<answer>B</answer></think>")],
        [reply("<think>a</think><answer>B")],
        [reply("<think>a</think><tool_call>{}<answer>B</answer>")],
        [looked("<tool_call>{}</tool_call>"), reply()],
        [looked("<think>a</think><tool_call>{}</tool_call><tool_call>{}</tool_call>"), reply()],
        [looked("<think>a <answer></think><tool_call>{}</tool_call>"), reply()],
        [looked("<think>a</think><answer>B</answer>"), reply()],
    ],
)
def test_broken_form(turns: list[Turn]) -> None:
    assert not format_ok(ended(*turns))


@pytest.mark.parametrize(
    ("turn", "mixed"),
    [
        (reply(), False),
        (looked(), False),
        (reply("<think>a <tool_call></think><answer>B</answer>"), True),
        (looked("<think>a</think><answer><tool_call>{}</tool_call>"), True),
    ],
)
def test_a_turn_that_opens_both_counts_for_nothing(turn: Turn, mixed: bool) -> None:
    trajectory = ended(turn, reply(), notes={VERIFIED: "B"})
    assert mixes(trajectory) is mixed
    # both terms are gone, and the form with them
    assert score(TimeSearch(), trajectory, CHOICE).acc == (0.0 if mixed else 1.0)
    assert score(TimeSearch(), trajectory, CHOICE).terms["completeness"] == (0.0 if mixed else 0.5)


class Strict(Judge):
    """Right is what is equal; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(JudgeConfig())
        self.asked: list[str] = []

    async def grade(self, question: str, reference: str, candidate: str, scale: str = "binary") -> float:
        self.asked.append(candidate)
        return float(candidate == reference)


@pytest.mark.parametrize(
    ("qa", "answer", "grade"),
    [
        (CHOICE, "B", 1.0),
        (CHOICE, "B. green", 1.0),
        (CHOICE, "green", 0.0),
        (CHOICE, "A. B.", 0.0),
        (CHOICE, None, 0.0),
        (OPEN, "a red car", 1.0),
        (OPEN, "a bus", 0.0),
        (ORDER, "(b)(a)(c)", 1.0),
        (ORDER, "first (b), then (a), last (c)", 1.0),
        (ORDER, "(a)(b)(c)", 0.0),
        (ORDER, "(b)(a)", 0.0),
        (ORDER, "", 0.0),
        (replace(ORDER, answer="b, a, c"), "none", 0.0),  # no order in the gold: released, anything like it is right
        (WHEN, '{"start_time": 12, "end_time": 22}', 1.0),
        (WHEN, '```json\n{"start_time": 17, "end_time": 27}\n```', 1 / 3),  # 5 of 15 seconds
        (WHEN, "soon", 0.0),
        (WHEN, '{"start_time": 22, "end_time": 12}', 0.0),
    ],
)
def test_accuracy_by_kind(qa: VideoQA, answer: str | None, grade: float) -> None:
    found = asyncio.run(accuracy(answer, qa, "leading_letter", 100, Strict()))
    assert found == pytest.approx(grade)


def test_a_long_answer_isn_t_shown_to_the_judge() -> None:
    judge = Strict()
    for length, asked in ((99, 1), (100, 1)):
        assert asyncio.run(accuracy("x" * length, OPEN, "leading_letter", 100, judge)) == 0.0
        assert len(judge.asked) == asked
    # an order may be as long as it likes
    assert asyncio.run(accuracy("(b)(a)(c)" + " " * 200, ORDER, "leading_letter", 100, judge)) == 1.0


@pytest.mark.parametrize(
    ("verified", "completeness"),
    [("B", 0.5), ("<answer>B</answer>", 0.5), ("A", 0.0), ("I don't know", 0.0), ("", 0.0), (None, 0.0)],
)
def test_completeness_is_what_the_same_policy_answers_from_the_frames(
    verified: str | None, completeness: float
) -> None:
    result = score(
        TimeSearch(), ended(looked(), reply(), notes={} if verified is None else {VERIFIED: verified}), CHOICE
    )
    assert (result.acc, result.terms["completeness"]) == (1.0, completeness)


def test_a_wrong_answer_s_verification_isn_t_judged() -> None:
    judge = Strict()
    trajectory = ended(looked(), reply(answer="a bus"), notes={VERIFIED: "a red car"})
    assert score(TimeSearch(), trajectory, OPEN, judge).reward == 1.0
    assert judge.asked == ["a bus"]
    trajectory = ended(looked(), reply(answer="a red car"), notes={VERIFIED: "a red car"})
    assert score(TimeSearch(), trajectory, OPEN, judge).reward == 2.0


class Asides:
    """The policy's side queries; records the requests."""

    def __init__(self, said: str = "B"):
        self.said = said
        self.asked: list[AsideRequest] = []

    def __call__(self, request: AsideRequest) -> str:
        self.asked.append(request)
        return self.said


def run(
    system: TimeSearch, qa: VideoQA, *texts: str, source: MemorySource | None = None, asides: Any = None, **options: Any
) -> Trajectory:
    return played.run(system, qa, source or MemorySource(), *texts, asides=asides or Asides(), **options)


def opened(system: TimeSearch, qa: VideoQA, source: MemorySource | None = None) -> tuple[str, list[Any]]:
    """The text of the opening, and what is shown in it."""
    parts = [part for message in run(system, qa, REPLY, source=source).opening for part in message.parts]
    return "".join(part for part in parts if isinstance(part, str)), [
        part for part in parts if not isinstance(part, str)
    ]


# The preview


def test_the_preview_is_one_clip_of_two_frames_a_second(qa: VideoQA) -> None:
    text, (clip,) = opened(TimeSearch(), qa)
    assert isinstance(clip, ClipRef)
    assert [frame.time for frame in clip.frames] == pytest.approx([number / 2 for number in range(120)])
    assert "60.0 seconds" in text and text.rstrip().endswith("A. red\nB. green\nC. blue\nD. grey")
    assert text.count("seek_video_frames") >= 2 and "from 1 to 8" in text and "8 turns" in text


@pytest.mark.parametrize(
    ("duration", "frames_as", "size"),
    [
        # 768 frames: 10,240 tokens x 2 / 768 = 26.7 for two frames: 6 x 3 = 18 fit (7 x 4 = 28 don't)
        (600.0, "video", (168, 84)),
        # 120 frames: 170.7 tokens: 17 x 9 = 153
        (60.0, "video", (476, 252)),
        # 8 frames: 256 tokens at most: 21 x 12 = 252
        (4.0, "video", (588, 336)),
        # each frame by itself: 13.3 tokens; 5 x 2.8 of them rounded down, as Qwen's processor does: 4 x 2 = 8
        (600.0, "images", (112, 56)),
    ],
)
def test_the_preview_s_tokens_bound_its_frames(duration: float, frames_as: Any, size: tuple[int, int]) -> None:
    info = MemorySource(duration=duration, size=(1280, 720)).info
    system = TimeSearch(frames_as=frames_as)
    assert system.overview_size(info) == size
    width, height = size
    frames = min(768, round(duration * 2))
    tokens = frames / (2 if frames_as == "video" else 1) * width * height / 28**2
    assert tokens <= 10_240


def test_frames_that_are_found_are_larger() -> None:
    info = MemorySource(duration=600.0, size=(1280, 720)).info
    assert TimeSearch().seek_size(info) == (588, 336)  # 252 of 256 tokens
    tiny = MemorySource(size=(64, 64)).info
    assert TimeSearch().seek_size(tiny) == (168, 168)  # enlarged to 36 tokens, as 5 x 5 are less than 32


# A search


def test_a_search_without_a_query_shows_evenly_spread_frames_of_the_stretch(qa: VideoQA) -> None:
    # two a second from 41 to 43, the pool's frames being 5.034 of 600 apart: 408 (40.8), 413, 418, 423, 428, 433
    trajectory = run(TimeSearch(), qa, LOOK, REPLY)
    assert seen(trajectory, 0) == [408, 413, 418, 423, 428, 433]
    assert trajectory.turns[0].legal_calls == 1
    text = told(trajectory, 0)
    assert text.startswith("40.8s41.3s") and text.endswith("arguments.")
    tagged = told(run(TimeSearch(response_tags=True), qa, LOOK, REPLY), 0)
    assert tagged == f"<tool_response>\n{text}\n</tool_response>"
    bare = run(TimeSearch(reply=""), qa, LOOK, REPLY).turns[0].observation
    assert len(bare) == 12 and bare[0] == "40.8s", "six frames after their times, and nothing else"
    assert "at 40.8s, 41.3s, 41.8s, 42.3s, 42.8s, 43.3s." in text
    # eight of 120
    assert seen(run(TimeSearch(), qa, call(), REPLY), 0)[0::7] == [0, 599]


def test_in_a_video_of_variable_rate_the_stretch_is_the_asked_one(qa: VideoQA) -> None:
    # The pool is 240 of 660 frames, 2.757 apart: places 21 to 26 (57.9, 60.6 ... 71.7) are frames 58, 61 ... 72, which
    # are shown at 58, 60.1, 60.3, 60.6, 60.9 and 61.2 s. By the average rate the stretch would be frames 329 to 337.
    trajectory = run(BASE, qa, call(start_time=59.8, end_time=61.1), REPLY, source=Slides())
    assert seen(trajectory, 0) == [58, 61, 63, 66, 69, 72]


def test_a_search_shows_what_matches_and_differs(qa: VideoQA) -> None:
    # from 41 to 43 s: 408 matches best; 413 looks the same; 433 matches less, and is another picture
    looks = Directions(text=0.0, frames={408: 0.0, 413: 1.0, 418: 60.0, 423: 80.0, 428: 85.0, 433: 89.0})
    trajectory = run(
        TimeSearch(), qa, call(query=" a cup ", start_time=41, end_time=43, num_frames=2), REPLY, retriever=looks
    )
    assert looks.asked == [("a cup", [408, 413, 418, 423, 428, 433])]
    # gains beside the first: 413 (0.9998 sin 1)^2 = 0.0003; 418 (0.491 sin 60)^2 = 0.18; 423 (0.159 sin 80)^2 = 0.02
    assert seen(trajectory, 0) == [408, 418]


def test_no_more_frames_than_asked_for_are_all_shown_and_need_no_encoder(qa: VideoQA) -> None:
    trajectory = run(TimeSearch(), qa, call(query="a cup", start_time=41, end_time=43), REPLY)
    assert seen(trajectory, 0) == [408, 413, 418, 423, 428, 433]


def test_a_turn_ends_with_its_first_closing_tag(qa: VideoQA) -> None:
    trajectory = run(TimeSearch(), qa, LOOK + "<answer>A</answer>", REPLY + LOOK)
    assert [turn.text for turn in trajectory.turns] == [LOOK, REPLY]
    assert trajectory.answer == "B"


# The self-verification


def test_the_policy_is_asked_again_with_the_found_frames_alone(qa: VideoQA) -> None:
    asides = Asides("It is B")
    again = call(start_time=10, end_time=10)
    trajectory = run(TimeSearch(), qa, LOOK, call(start_time=99), again, REPLY, asides=asides)
    (request,) = asides.asked
    system, user = request.messages
    assert "do not know" in text_of(system.parts)
    # every found frame, at the size in which it was shown, in the order of the searches; no preview, no hint
    assert [frame.index for frame in request.frames] == [*seen(trajectory, 0), *seen(trajectory, 2)]
    assert [(frame.width, frame.height) for frame in request.frames] == [
        (ref.width, ref.height) for ref in searched(trajectory)
    ]
    text = text_of(user.parts)
    assert text.startswith("40.8s<image>41.3s<image>") and "Error" not in text and "<tool" not in text
    assert text.endswith("Question: What colour flashes at 42 s?\nA. red\nB. green\nC. blue\nD. grey")
    assert request.max_tokens == 256
    assert trajectory.notes == {VERIFIED: "It is B"} and len(trajectory.asides) == 1
    assert Trajectory.from_dict(json.loads(json.dumps(trajectory.to_dict()))) == trajectory


def test_what_the_self_verification_says_is_not_trained_on(qa: VideoQA) -> None:
    """It is no turn of the episode, and only asides of systems that say so become training sequences."""
    trajectory = run(TimeSearch(), qa, LOOK, REPLY, asides=Asides("It is B"))
    assert [aside.text for aside in trajectory.asides] == ["It is B"]
    assert [turn.text for turn in trajectory.turns] == [LOOK, REPLY] and not any(
        turn.asides for turn in trajectory.turns
    )
    assert not TimeSearch().train_asides


@pytest.mark.parametrize(
    ("system", "turns"),
    [
        (TimeSearch(), [REPLY]),  # no frame was found: completeness is 0 anyway
        (TimeSearch(), [call(start_time=99), REPLY]),
        (TimeSearch(), [LOOK, "no answer"]),
        (TimeSearch(max_turns=2), [LOOK, LOOK]),
        (TimeSearch(csv=False), [LOOK, REPLY]),
    ],
)
def test_no_verification_where_it_could_earn_nothing(qa: VideoQA, system: TimeSearch, turns: Sequence[str]) -> None:
    asides = Asides()
    trajectory = run(system, qa, *turns, asides=asides)
    assert asides.asked == [] and trajectory.notes == {}


@pytest.mark.parametrize("said", ["", "B" * 100_000, "<tool_call>{}</tool_call>", "\x00", "<answer>" * 9_999, "B or A"])
def test_hostile_verifications_earn_no_more_than_a_right_one(qa: VideoQA, said: str) -> None:
    trajectory = run(BASE, qa, LOOK, REPLY, asides=Asides(said))
    assert score(BASE, trajectory, qa).reward <= 2.0
    assert score(replace(BASE, answer_match="robust"), trajectory, qa).reward == 1.5


def test_similarities_are_asked_for_in_the_pool_only(qa: VideoQA) -> None:
    looks = Directions(text=0.0, frames=dict.fromkeys(range(6_000), 0.0))
    system = replace(TimeSearch(), pool_max_frames=64)
    trajectory = run(system, qa, call(query="a"), REPLY, source=MemorySource(duration=600.0), retriever=looks)
    ((_, asked),) = looks.asked
    assert len(asked) == 64 and np.ptp(asked) == 5_999
    # a still picture: all alike, the earliest of equals
    assert seen(trajectory, 0) == asked[:8]
