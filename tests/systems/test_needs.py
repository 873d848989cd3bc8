"""Whom a score may ask, before the first episode: by training's score and by that of demonstrations."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agentic_video.evaluation.baseline import baseline_of
from agentic_video.graders.base import Graders
from agentic_video.systems.base import Grader, System
from agentic_video.systems.eva import Eva
from agentic_video.systems.longvt import LongVT
from agentic_video.systems.needs import check_needs, judged
from agentic_video.systems.timesearch import TimeSearch
from agentic_video.systems.videobrain import VideoBrain
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory
from agentic_video.utils.errors import SetupError


def said(system: System, qa: VideoQA, *, demonstrations: bool) -> str:
    """What is wrong with a row where nobody can be asked; empty where nothing is."""
    try:
        check_needs("rows", [qa], system, {"judge", "verifier"}, demonstrations=demonstrations)
    except SetupError as error:
        return str(error)
    return ""


def test_a_demonstration_needs_no_class(qa: VideoQA) -> None:
    system = VideoBrain(answer_match="robust")
    assert "'extra_info.class' must be one of" in said(system, qa, demonstrations=False)
    assert said(system, qa, demonstrations=True) == ""
    # a class that doesn't exist is wrong in both
    assert "got 'easy'" in said(system, replace(qa, extra={"class": "easy"}), demonstrations=True)


def test_a_demonstration_needs_the_judge_all_the_same(qa: VideoQA) -> None:
    free = replace(qa, answer_type="open_ended", answer="red", options=())
    for system, row, fault in (
        (VideoBrain(), qa, "are multiple choice, judged unless"),
        (VideoBrain(answer_match="robust"), free, "are open ended"),
        (VideoZoomer(), free, "are open ended"),
    ):
        assert f"rows: 1 of 1 rows {fault}" in said(system, row, demonstrations=True)


def test_whose_answers_a_judge_reads(qa: VideoQA) -> None:
    free = replace(qa, answer_type="open_ended", answer="red", options=())
    asking: tuple[System, ...] = (VideoZoomer(), LongVT(), TimeSearch())
    for system in (*asking, *(one.direct() for one in asking), baseline_of(Eva(), 4, tiny=False), VideoBrain()):
        assert judged(system, free) == "are open ended", system.name
    for system in (*asking, Eva(), baseline_of(Eva(), 4, tiny=False), VideoBrain(answer_match="robust")):
        assert judged(system, qa) == "", system.name
    assert judged(VideoBrain(), qa).startswith("are multiple choice, judged unless")
    assert judged(Eva(), free) == judged(OwnGrade(), free) == ""
    # what is wrong with a row is said elsewhere
    assert judged(VideoBrain(), replace(qa, extra={"class": "easy"})) == ""


@dataclass(frozen=True)
class OwnGrade(VideoZoomer):
    """Grades in its own way, and doesn't say what that takes."""

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        return 1.0


def test_a_demonstration_needs_no_verifier(qa: VideoQA) -> None:
    assert "are verified unless" in said(Eva(), qa, demonstrations=False)
    assert said(Eva(), qa, demonstrations=True) == ""


@dataclass(frozen=True)
class OwnDemonstrations(VideoZoomer):
    """Scores demonstrations in its own way, and doesn't say what that takes."""

    async def demonstration_score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        return Score(1.0, 1.0, 1.0, {})


@dataclass(frozen=True)
class OwnNeeds(OwnDemonstrations):
    """Says it."""

    def demonstration_needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        return {"judge": "are short"}


def test_a_score_of_one_s_own_is_asked_about_only_where_it_says_what_it_needs(qa: VideoQA) -> None:
    free = replace(qa, answer_type="open_ended", answer="red", options=())
    assert "are open ended" in said(OwnDemonstrations(), free, demonstrations=False)
    assert said(OwnDemonstrations(), free, demonstrations=True) == ""
    assert "1 of 1 rows are short: set agentic_video.judge.base_url" in said(OwnNeeds(), free, demonstrations=True)
