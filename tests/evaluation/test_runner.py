"""Single questions: played, measured, graded, written down."""

import asyncio
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from agentic_video.config.settings import Settings
from agentic_video.datasets.rows import load_rows
from agentic_video.evaluation.baseline import Baseline
from agentic_video.evaluation.model import ModelSpec
from agentic_video.evaluation.plan import EvalPlan
from agentic_video.evaluation.results import Failure, failures, finished, key_of
from agentic_video.evaluation.runner import grades, play_rows, visual_tokens
from agentic_video.evaluation.suites import JUDGED
from agentic_video.graders.base import Graders
from agentic_video.graders.judge import Judge, Scale
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.eva.system import Eva
from agentic_video.systems.framemind.system import FrameMind
from agentic_video.systems.framethinker.system import FrameThinker
from agentic_video.systems.longvt.system import LongVT
from agentic_video.systems.paravt.system import ParaVT
from agentic_video.systems.reward_function import RewardConfig
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.toyworld.questions import World
from agentic_video.types.action import Action, Answer, Calls, Illegal
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import ClipRef, EndReason, FrameRef, RecordedMessage, Trajectory, Turn
from agentic_video.video.errors import Reason, VideoError
from tests.evaluation.scripted import named


def answered(answer: str, *frames: FrameRef) -> Trajectory:
    """An episode of one turn."""
    opening = (Message("user", frames),)
    return Trajectory("q", "s", opening, (Turn(answer, Answer(answer), 1),), EndReason.ANSWER)


def test_visual_tokens_of_all_frames() -> None:
    shown = answered("B", FrameRef(0, 0.0, 280, 56), FrameRef(1, 0.1, 10, 10))
    # 10 x 2, and one at least
    assert visual_tokens(shown, 28) == 21
    refs = [FrameRef(number, float(number), 56, 28) for number in range(5)]
    clips = (RecordedMessage("user", (refs[0], ClipRef(tuple(refs)), ClipRef(tuple(refs[:2])))),)
    # two tokens a frame: one image, three moments, one moment
    assert visual_tokens(Trajectory("q", "s", clips, (), EndReason.ANSWER), 28) == 2 + 3 * 2 + 2


def test_grades_by_both_rules_where_they_can_be_had(qa: VideoQA) -> None:
    def graded(system: System, qa: VideoQA) -> dict[str, float]:
        return asyncio.run(grades(system, answered("red. B."), qa, Graders()))

    assert graded(VideoZoomer(), qa) == {"acc": 1.0, "acc_robust": 0.0}
    # it wants a judge, and there is none
    assert graded(VideoBrain(), qa) == {"acc_robust": 0.0}
    assert graded(VideoZoomer(), replace(qa, answer_type="open_ended", options=())) == {}
    free = VideoQA("q", "memory", "what?", "red B", answer_type="open_ended")
    assert graded(Eva(), free) == {"acc": pytest.approx(1.0)}, "by words"
    nothing = Trajectory("q", "s", (), (), EndReason.TURN_LIMIT)
    assert asyncio.run(grades(VideoBrain(), nothing, qa, Graders())) == {"acc": 0.0, "acc_robust": 0.0}


@pytest.mark.parametrize(
    ("system", "answer", "expected"),
    [
        (VideoZoomer(), "red. B.", 1.0),
        (VideoZoomer(answer_match="robust"), "red. B.", 0.0),
        (VideoZoomer(answer_match="robust"), "green. B.", 1.0),
        (FrameMind(), "B.", 0.0),
        (FrameMind(), "B", 1.0),
        (FrameThinker(answer_match="exact"), "B and more", 1.0),
        (FrameThinker(), "B and more", 0.0),
        (VideoBrain(answer_match="robust"), "(b)", 1.0),
        (Eva(), "B", 1.0),
        (Baseline(2), "The answer is B.", 1.0),
        (Baseline(2), "C", 0.0),
    ],
)
def test_each_system_grades_by_its_own_rule(system: System, answer: str, expected: float, qa: VideoQA) -> None:
    assert "class" not in qa.extra, "VideoBrain's reward would ask for it"
    assert asyncio.run(grades(system, answered(answer), qa, Graders()))["acc"] == expected


def test_an_accuracy_that_is_no_number_is_named(qa: VideoQA, monkeypatch: pytest.MonkeyPatch) -> None:
    async def grade(*arguments: object) -> Any:
        return math.nan

    monkeypatch.setattr(VideoZoomer, "grade", grade)
    trajectory = answered("A")
    with pytest.raises(ArithmeticError, match=r"VideoZoomer\.grade"):
        asyncio.run(grades(VideoZoomer(), trajectory, qa, Graders()))


class HalfRight(Judge):
    """Finds half of what matters in each answer."""

    def __init__(self) -> None:
        self.asked: list[Scale] = []

    async def grade(self, question: str, reference: str, candidate: str, scale: Scale = "binary") -> float:
        self.asked.append(scale)
        return {"binary": 0.0, "half": 0.5, "unit": 0.5}[scale]


@pytest.mark.parametrize(
    "system", [VideoZoomer(), LongVT(), ParaVT(), Eva(), VideoBrain()], ids=lambda system: system.name
)
@pytest.mark.parametrize("source", sorted(JUDGED))
def test_where_a_benchmark_asks_a_judge_no_answer_is_half_right(system: System, source: str) -> None:
    free = VideoQA("q", "memory", "what?", "two carrots", answer_type="open_ended", data_source=source)
    judge = HalfRight()
    assert asyncio.run(grades(system, answered("carrots"), free, Graders(judge=judge))) == {"acc": 0.0}
    assert asyncio.run(grades(system, answered(""), free, Graders(judge=judge))) == {"acc": 0.0}
    assert judge.asked == ["binary"]
    assert asyncio.run(grades(system, answered("carrots"), free, Graders())) == {}, "there is no judge"
    if isinstance(system, LongVT):
        elsewhere = replace(free, data_source="mine")
        assert asyncio.run(grades(system, answered("carrots"), elsewhere, Graders(judge=judge))) == {"acc": 0.5}


def test_intervals_by_their_overlap_and_by_no_rule_for_choices(qa: VideoQA) -> None:
    timed = VideoQA("q", "memory", "when?", "4 - 8", "interval", windows=((4.0, 8.0),))
    for system in (VideoZoomer(), VideoBrain(), Eva(), Baseline(2)):
        assert asyncio.run(grades(system, answered("6 - 8 s"), timed, Graders())) == {"acc": 0.5}


ZOOMER = VideoZoomer(answer_match="robust")
ALWAYS_RIGHT = ModelSpec(named("OracleBackend"), "nothing")


def planned(folder: Path, system: System = ZOOMER, model: ModelSpec = ALWAYS_RIGHT) -> EvalPlan:
    """The plan of a shard."""
    limits = TokenLimits(prompt=8_000, response=8_000, turn=4_000)
    return EvalPlan(folder, Settings(system), model, limits, concurrency=2, provenance={"engine": "scripted"})


@dataclass(frozen=True)
class OnADisk(VideoZoomer):
    """Finds nothing where the disk isn't there."""

    disk: str = ""
    reason: Reason = "timeout"

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        if not Path(self.disk).exists():
            raise VideoError(view.video.path, self.reason, "check the disk")
        return await super().observe(action, view)


def test_a_disk_that_is_away_for_a_while_is_no_wrong_answer(small_world: World, tmp_path: Path) -> None:
    rows = load_rows([small_world.heldout])[0][:1]
    system = OnADisk(disk=str(tmp_path / "disk"))
    plan = planned(tmp_path, system, says_file(tmp_path, rows, LOOK, ANSWER))
    asyncio.run(play_rows(plan, rows, 0, lambda result: None))
    assert finished(tmp_path) == ([], [])
    (failure,) = failures(tmp_path)
    assert failure.key == key_of(rows[0]) and failure.error.endswith("check the disk [timeout]")
    # what doesn't pass is the end of an episode
    damaged = replace(plan, folder=tmp_path / "damaged", settings=Settings(replace(system, reason="corrupt")))
    damaged.folder.mkdir()
    asyncio.run(play_rows(damaged, rows, 0, lambda result: None))
    assert finished(damaged.folder)[0][0].trajectory.end is EndReason.TOOL_ERROR

    (tmp_path / "disk").touch()
    asyncio.run(play_rows(plan, rows, 0, lambda result: None))
    assert [record.trajectory.answer for record in finished(tmp_path)[0]] == ["A"] and failures(tmp_path) == []


LOOK = '<think>?</think><video_zoom>{"segment": [1, 3], "fps": 2}</video_zoom>'
ANSWER = "<think>!</think><answer>A</answer>"


def says_file(folder: Path, rows: Sequence[VideoQA], *turns: str) -> ModelSpec:
    """A model that says the same turns of each question."""
    says = folder / "says.json"
    says.write_text(json.dumps({qa.id: turns for qa in rows}))
    return ModelSpec(named("FileBackend"), str(says))


class Careless(VideoZoomer):
    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        return (Message("user", ("?")),)  # type: ignore[arg-type]


class Secretive(VideoZoomer):
    def parse(self, text: str) -> Action:
        action = super().parse(text)
        if isinstance(action, Calls):
            cast(dict[str, Any], action.calls[0].arguments)["seen"] = {1}
        return action


class Grey(VideoZoomer):
    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        (frame,) = await view.video.frames([0], (56, 56))
        return Observation(("look: ", Frame(0, 0.0, frame.image[:, :, 0] / 255)), legal_calls=1)


@pytest.mark.parametrize(
    ("system", "error"),
    [
        (Careless(), r"Message\.parts must be .* \(test_runner\.py line \d+\)$"),
        (Secretive(answer_match="robust"), r"^RecordError: .*\.arguments\.seen "),
        (Grey(answer_match="robust"), r"^TypeError: Observation\.parts\[1\] .* \(test_runner\.py line \d+\)$"),
    ],
)
def test_a_faulty_system_fails_its_questions(system: System, error: str, small_world: World, tmp_path: Path) -> None:
    """The failure names the line of the user's own code, or the value that no file of records holds."""
    rows = load_rows([small_world.heldout])[0][:2]
    told: list[Record | Failure] = []
    plan = planned(tmp_path, system, says_file(tmp_path, rows, LOOK, ANSWER))
    asyncio.run(play_rows(plan, rows, 0, told.append))
    assert len(told) == 2 and told == failures(tmp_path) and finished(tmp_path) == ([], [])
    assert isinstance(told[0], Failure) and re.search(error, told[0].error)


def test_a_rule_that_hangs_fails_its_question_and_no_other(small_world: World, tmp_path: Path) -> None:
    rows = load_rows([small_world.heldout])[0][:3]

    class Hanging(VideoZoomer):
        async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
            if qa.id == rows[1].id:
                await asyncio.Event().wait()
            return await super().grade(trajectory, qa, graders)

    plan = planned(tmp_path, Hanging(answer_match="robust"), says_file(tmp_path, rows, ANSWER))
    plan = replace(plan, settings=replace(plan.settings, reward=RewardConfig(timeout=0.5)))
    asyncio.run(play_rows(plan, rows, 0, lambda result: None))
    (failure,) = failures(tmp_path)
    assert failure.key == key_of(rows[1]) and failure.error.startswith("TimeLimitError")
    assert f"row {rows[1].id}" in failure.error
    assert {key_of(record.qa) for record in finished(tmp_path)[0]} == {key_of(rows[0]), key_of(rows[2])}


def test_every_row_is_told_and_written_down(small_world: World, tmp_path: Path) -> None:
    rows = load_rows([small_world.heldout])[0][:3]
    rows[1] = replace(rows[1], video=str(tmp_path / "gone.mp4"))
    plan = planned(tmp_path)
    told: list[Record | Failure] = []
    asyncio.run(play_rows(plan, rows, 7, told.append))
    assert {key_of(result.qa) if isinstance(result, Record) else result.key for result in told} == {
        key_of(qa) for qa in rows
    }
    records = finished(tmp_path)[0]
    assert {record.qa.id for record in records} == {rows[0].id, rows[2].id}
    assert (tmp_path / "episodes-007.jsonl").is_file()
    for record in records:
        assert record.provenance == {"engine": "scripted"}
        assert record.rewards["acc"] == record.rewards["attempts"] == 1.0
        assert record.rewards["turns"] == len(record.trajectory.turns)
        assert record.rewards["frames"] == len(record.trajectory.frames) > 0
        assert record.rewards["video_seconds"] == pytest.approx(record.qa.extra["seconds"], abs=1.0)
    (failure,) = failures(tmp_path)
    assert failure.key == key_of(rows[1]) and failure.error.startswith("VideoError: ") and "gone.mp4" in failure.error
