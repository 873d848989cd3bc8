"""What every system can be asked: sweeps' and baselines' variants, demonstrations, the graded answer."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from agentic_video.graders.base import Graders
from agentic_video.graders.endpoint import EndpointError
from agentic_video.graders.judge import Judge, JudgeConfig
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.eva import Eva
from agentic_video.systems.framemind import FrameMind, FrameSampling
from agentic_video.systems.framethinker import FrameThinker, GuardRules
from agentic_video.systems.timesearch import TimeSearch
from agentic_video.systems.videobrain import VideoBrain
from agentic_video.systems.videoo3 import VideoO3
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation
from agentic_video.types.row import RowError, VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import EndReason, FrameRef, RecordedMessage, Trajectory, Turn
from tests.conftest import MemorySource

SYSTEMS: tuple[System, ...] = (VideoZoomer(), FrameThinker(), FrameMind(), VideoBrain(), Eva(), TimeSearch(), VideoO3())
every_system = pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)


@dataclass(frozen=True)
class Plain(System):
    """The least that a system must have."""

    name: str = "plain"
    max_turns: int = 2
    max_images: int = 3
    stop: tuple[str, ...] = ()

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        return (Message("user", (view.qa.question,)),)

    def parse(self, text: str) -> Action:
        return Answer(text)

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        return None

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        acc = await self.grade(trajectory, qa, graders)
        return Score(acc, acc, 1.0, {"acc": acc})


def answered(text: str, *earlier: Turn, said: str = "") -> Trajectory:
    return Trajectory("q", "any", (), (*earlier, Turn(said or text, Answer(text), 1)), EndReason.ANSWER)


# The number of frames of the first view


def first_view(system: System) -> tuple[Any, ...]:
    match system:
        case VideoZoomer() | TimeSearch() | VideoO3():
            return (system.overview_max_frames,)
        case FrameThinker():
            return (system.overview_frames, system.long_overview_frames)
        case FrameMind():
            return (system.low, system.high)
        case Eva(overview="none"):
            return (system.max_frames,)
        case VideoBrain() | Eva():
            return (system.overview_frames,)
    raise TypeError(system)


@pytest.mark.parametrize(
    ("system", "count", "frames", "max_images"),
    [
        (VideoZoomer(), 128, (128,), 192),  # 64 more than 64
        (VideoZoomer(), 32, (32,), 128),  # fewer leave the room as it is
        (FrameThinker(), 64, (64, 64), 180),  # 52 more than the 12 of a long video
        (FrameThinker(), 4, (4, 4), 128),
        (FrameMind(), 128, (FrameSampling(128, 224, 224), FrameSampling(128, 448, 448)), 164),  # 64 more than 64
        (FrameMind(), 16, (FrameSampling(16, 224, 224), FrameSampling(16, 448, 448)), 100),
        (VideoBrain(), 32, (32,), 144),  # 16 more than 16
        (VideoBrain(), 8, (8,), 128),
        (Eva(), 64, (64,), 512),  # no overview: the most of one call
        (Eva(overview="uniform"), 64, (64,), 544),  # 32 more than 32
        (VideoO3(), 64, (64,), 9_216),
        (TimeSearch(), 1024, (1024,), 1080),  # 256 more than 768
        (TimeSearch(), 64, (64,), 824),
    ],
)
def test_another_number_of_frames(system: System, count: int, frames: tuple[Any, ...], max_images: int) -> None:
    changed = system.with_frames(count)
    assert (first_view(changed), changed.max_images) == (frames, max_images)
    assert (changed.name, changed.max_turns, changed.prompt) == (system.name, system.max_turns, system.prompt)


def test_one_call_s_frames_leave_eva_s_overview_alone() -> None:
    changed = Eva().with_frames(64)
    assert isinstance(changed, Eva)
    assert (changed.overview, changed.overview_frames) == ("none", 32)
    overview = Eva(overview="uniform").with_frames(64)
    assert isinstance(overview, Eva)
    assert overview.max_frames == 256


@pytest.mark.parametrize(
    "system", [VideoZoomer(overview="none"), FrameThinker(overview="none"), VideoBrain(overview="none"), Plain()]
)
def test_a_system_without_such_a_number_says_so(system: System) -> None:
    with pytest.raises(ValueError, match=f"{system.name} has no such number of frames"):
        system.with_frames(8)


# The number of calls, and none


@every_system
@pytest.mark.parametrize("count", [1, 3, 7])
def test_so_many_calls_and_one_answer(system: System, count: int) -> None:
    changed = system.with_calls(count)
    assert changed.max_turns == count + 1
    assert replace(changed, max_turns=system.max_turns) == system  # type: ignore[type-var]


@every_system
def test_no_calls_is_the_direct_answer(system: System) -> None:
    assert system.with_calls(0) == system.direct()


@pytest.mark.parametrize(
    ("system", "direct"),
    [
        (VideoZoomer(), VideoZoomer(max_turns=1, prompt="direct")),
        (VideoZoomer(overview="none"), VideoZoomer(max_turns=1, prompt="direct", overview="uniform")),
        (FrameThinker(), FrameThinker(max_turns=1, prompt="framethinker_direct")),
        (
            FrameThinker(guard=GuardRules(prompt="x")),
            FrameThinker(guard=GuardRules(prompt="x"), max_turns=1, prompt="x"),
        ),
        (FrameMind(), FrameMind(max_turns=1, prompt="direct")),
        (VideoBrain(), VideoBrain(max_turns=1, prompt="direct")),
        (Eva(), Eva(max_turns=1, prompt="direct", overview="uniform")),
        (TimeSearch(), TimeSearch(max_turns=1, prompt="direct", tools_prompt="")),
        (Eva(overview="rate"), Eva(overview="rate", max_turns=1, prompt="direct")),
        (VideoO3(), VideoO3(max_turns=1, prompt="direct")),
    ],
)
def test_the_direct_answer(system: System, direct: System) -> None:
    assert system.direct() == direct


def test_a_system_without_a_prompt_has_no_direct_answer() -> None:
    with pytest.raises(TypeError, match="prompt"):
        Plain().direct()


# Demonstrations

LOOK = Turn(
    "<think>near 4</think><action>choose frames between 100 and 200</action>",
    Calls((ToolCall("choose_frames", {"start": 100, "end": 200}),)),
    9,
    observation=(FrameRef(101, 10.1, 28, 28),),
    legal_calls=1,
)
SELECT = Turn(
    "<think>a</think><tool_call>{}</tool_call>",
    Calls((ToolCall("frame_select", {}),)),
    9,
    observation=(FrameRef(10, 1.0, 28, 28),),
    legal_calls=1,
)
OVERVIEW = (RecordedMessage("user", (FrameRef(10, 1.0, 28, 28), "Which?")),)
THOUGHT = "<think>seen</think><answer>B</answer>"


def demonstrated(system: System, trajectory: Trajectory, qa: VideoQA) -> Score:
    return asyncio.run(demonstration_score(system, trajectory, qa, Graders()))


@pytest.mark.parametrize(
    ("system", "said", "reward"),
    [
        (VideoZoomer(), THOUGHT, 1.0),  # 0.9 + 0.1
        (FrameThinker(), "<think>seen</think><action>output answer: B</action>", 1.0),
        (FrameMind(), THOUGHT, 1.0),
        (VideoBrain(answer_match="robust"), "<thinking>seen</thinking><answer>B</answer>", 1.55),  # 0.05 + 1 + 0.5
        (Eva(), THOUGHT, 1.0),
        (VideoO3(), THOUGHT, 2.0),  # 1 + 1; the row names no class
        (TimeSearch(), THOUGHT, 1.5),  # 1 + 0.5: nobody is there to verify it
    ],
    ids=lambda value: value.name if isinstance(value, System) else "",
)
def test_the_score_of_a_demonstration(qa: VideoQA, system: System, said: str, reward: float) -> None:
    score = demonstrated(system, answered("B", said=said), qa)
    assert (score.reward, score.acc, score.format) == (pytest.approx(reward), 1.0, 1.0)


def test_only_training_needs_a_row_s_class(qa: VideoQA) -> None:
    system, trajectory = (
        VideoBrain(answer_match="robust"),
        answered("B", said="<thinking>a</thinking><answer>B</answer>"),
    )
    with pytest.raises(RowError):
        asyncio.run(system.score(trajectory, qa, Graders()))
    assert demonstrated(system, trajectory, qa).reward == pytest.approx(1.55)
    # a class that is there counts: an active question answered without tools has no behaviour term
    assert demonstrated(system, trajectory, replace(qa, extra={"class": "active"})).reward == pytest.approx(1.05)


def test_only_training_needs_a_verifier(qa: VideoQA) -> None:
    trajectory = answered("B", SELECT, said=THOUGHT)
    with pytest.raises(EndpointError, match="verifier"):
        asyncio.run(Eva().score(trajectory, qa, Graders(source=MemorySource())))
    assert demonstrated(Eva(), trajectory, qa).reward == 1.0


@pytest.mark.parametrize(
    ("system", "trajectory", "fault"),
    [
        (VideoZoomer(), answered("B"), None),
        (FrameMind(), answered("B"), None),
        (Eva(), answered("B"), "answered without a look"),
        (Eva(), answered("B", SELECT), None),
        (Eva(), replace(answered("B"), opening=OVERVIEW), None),  # an overview is a look, too
        (FrameThinker(), answered("B"), None),
        (FrameThinker(), answered("B", LOOK), "inconsistent: fidelity"),  # the thought names another stretch
        (FrameThinker(), answered("B", LOOK, LOOK), "inconsistent: redundancy"),  # the first of two
        (VideoBrain(), answered("B", said="<thinking>a</thinking><answer>B</answer>"), None),
        (VideoBrain(), answered("B"), "blocks out of order"),
        (VideoBrain(), answered("B", said="<answer>B</answer>"), "thoughts don't equal calls and answers"),
    ],
)
def test_what_keeps_a_right_episode_from_being_shown(system: System, trajectory: Trajectory, fault: str | None) -> None:
    assert system.demonstration_fault(trajectory) == fault


# What else there is to ask


@pytest.mark.parametrize(("system", "side"), list(zip(SYSTEMS, (28, 28, 28, 32, 28, 28, 28), strict=True)))
def test_the_side_of_a_visual_token(system: System, side: int) -> None:
    assert system.visual_token_side == side


def test_the_side_follows_the_frames_factor() -> None:
    assert Eva(size_factor=32).visual_token_side == 32


@pytest.mark.parametrize(
    ("system", "team", "context"),
    [
        (VideoZoomer(), False, "all"),
        (FrameThinker(), False, "all"),
        (FrameMind(), False, "latest_evidence"),
        (VideoBrain(), False, "all"),
        (Eva(), True, "all"),
        (TimeSearch(), False, "all"),
    ],
)
def test_who_teaches_it_and_what_it_has_before_it(system: System, team: bool, context: str) -> None:
    assert (system.taught_by_team, system.context) == (team, context)


@pytest.mark.parametrize("system", [VideoZoomer(), FrameMind(), VideoBrain(), Eva(), TimeSearch(), Plain()])
def test_the_last_attempt_is_accepted_unless_a_system_says_otherwise(system: System) -> None:
    assert system.retry((answered("B"),)) is None


def test_images_leave_a_message_and_texts_stay() -> None:
    picture = Frame(0, 0.0, np.zeros((2, 2, 3), np.uint8))
    assert Plain().drop_images(("a", picture, "b", picture)) == ("a", "b")


@pytest.mark.parametrize(
    ("system", "grades"),
    [
        # of the answers B, "B.", green, "B or not", "A"
        (VideoZoomer(), (1, 1, 0, 0, 0)),  # one_letter
        (VideoZoomer(answer_match="last_letter"), (1, 1, 0, 0, 0)),
        (FrameThinker(), (1, 1, 1, 0, 0)),  # robust
        (FrameThinker(answer_match="exact"), (1, 0, 0, 1, 0)),  # the first word
        (FrameMind(), (1, 0, 0, 0, 0)),  # exact
        (VideoBrain(answer_match="strict"), (1, 1, 0, 0, 0)),
        (Eva(), (1, 1, 1, 0, 0)),  # robust
        (TimeSearch(), (1, 1, 0, 1, 0)),  # leading_letter
        (Plain(), (1, 1, 1, 0, 0)),
    ],
)
def test_choices_are_graded_by_the_system_s_rule(qa: VideoQA, system: System, grades: Sequence[int]) -> None:
    answers = ("B", "B.", "green", "B or not", "A")
    assert [asyncio.run(system.grade(answered(text), qa, Graders())) for text in answers] == list(grades)
    unanswered = Trajectory("q", "any", (), (), EndReason.ENGINE_ERROR)
    assert asyncio.run(system.grade(unanswered, qa, Graders())) == 0.0


@pytest.mark.parametrize(
    "cls", [VideoZoomer, FrameThinker, FrameMind, VideoBrain, Eva, TimeSearch, VideoO3], ids=lambda cls: cls.name
)
def test_a_grade_of_one_s_own_reaches_the_reward(cls: type[System], qa: VideoQA) -> None:
    async def grade(self: System, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        return 0.25

    lenient: System = type("Lenient", (cls,), {"grade": grade})()
    row = replace(qa, extra={**qa.extra, "class": "adaptive"})
    trajectory = answered("B", said="<thinking>green</thinking><answer>B</answer>")  # past VideoBrain's gate
    assert asyncio.run(lenient.score(trajectory, row, Graders())).acc == 0.25


class FixedJudge(Judge):
    async def grade(self, question: str, reference: str, candidate: str, scale: str = "binary") -> float:
        return {"binary": 1.0, "unit": 0.7}[scale]


@pytest.mark.parametrize(
    ("system", "grade"),
    [
        (VideoZoomer(), 1.0),
        (FrameThinker(), 1.0),
        (FrameMind(), 1.0),
        (VideoBrain(), 0.7),
        (Eva(), 1 / 3),  # by words, without the judge
        (TimeSearch(), 1.0),
    ],
)
def test_open_ended_answers_are_graded_by_a_judge_or_by_words(system: System, grade: float) -> None:
    qa = VideoQA(id="o", video="v", question="What?", answer="red", answer_type="open_ended")
    trajectory = answered("a red car")
    graders = Graders(judge=FixedJudge(JudgeConfig()))
    # ROUGE-1 and ROUGE-L: precision 1/3, recall 1, F1 1/2; no bigram: (1/2 + 0 + 1/2) / 3
    assert asyncio.run(system.grade(trajectory, qa, graders)) == pytest.approx(grade)


@pytest.mark.parametrize("system", [VideoZoomer(), FrameThinker(), FrameMind(), VideoBrain(), Eva(), TimeSearch()])
def test_intervals_are_graded_by_their_overlap_without_a_judge(system: System) -> None:
    qa = VideoQA("w", "v", "When?", "12 - 22", answer_type="interval", windows=((12.0, 22.0),))
    assert asyncio.run(system.grade(answered("12 - 22"), qa, Graders())) == 1.0
    # 8 of 12 seconds
    assert asyncio.run(system.grade(answered("from 10 s to 20 s"), qa, Graders())) == pytest.approx(2 / 3)
    assert asyncio.run(system.grade(answered("at the end"), qa, Graders())) == 0.0
