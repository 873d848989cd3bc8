import asyncio
import math
from dataclasses import replace

import pytest

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.synthesis.verify import verify
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from tests.conftest import MemorySource

ZOOM = '<think>a</think><video_zoom>{"segment": [0, 2], "fps": 1}</video_zoom>'
RIGHT, WRONG = "<think>b</think><answer>B</answer>", "<think>b</think><answer>A</answer>"
SYSTEM = VideoZoomer(overview_max_frames=2)


def reason(qa: VideoQA, *turns: str, system: VideoZoomer = SYSTEM) -> str:
    said = iter(turns)
    trajectory = asyncio.run(play(system, ScriptedPolicy(lambda view: next(said)), qa, MemorySource()))
    return asyncio.run(verify(system, trajectory, qa, Graders())).reason


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ((ZOOM, RIGHT), "kept"),
        ((ZOOM, WRONG), "wrong answer"),
        # several reasons: the first in the order of the check counts
        ((ZOOM, "<answer>A</answer>"), "format"),
        (("<video_zoom>{}</video_zoom>", "<answer>A</answer>"), "illegal call"),
    ],
)
def test_the_first_reason_counts(qa: VideoQA, turns: tuple[str, ...], expected: str) -> None:
    assert reason(qa, *turns) == expected


def test_no_answer_says_how_it_ended(qa: VideoQA) -> None:
    assert reason(qa, ZOOM, system=replace(SYSTEM, max_turns=1)) == "no answer: turn_limit"


def test_the_system_s_own_objection(qa: VideoQA, monkeypatch: pytest.MonkeyPatch) -> None:
    """FrameThinker refuses right episodes whose thoughts and actions disagree."""
    monkeypatch.setattr(VideoZoomer, "demonstration_fault", lambda self, trajectory: "illogical", raising=False)
    assert reason(qa, ZOOM, RIGHT) == "illogical"
    assert reason(qa, ZOOM, WRONG) == "wrong answer"


def test_grades_by_degrees(qa: VideoQA) -> None:
    """A wrong choice has accuracy 0, which is enough only where 0 is asked for."""
    trajectory = asyncio.run(play(SYSTEM, ScriptedPolicy(lambda view: WRONG), qa, MemorySource()))
    verdict = asyncio.run(verify(SYSTEM, trajectory, qa, Graders(), least_acc=0.0))
    assert (verdict.reason, verdict.rewards) == ("kept", {"acc": 0.0, "format": 1.0})


@pytest.mark.parametrize(("value", "error"), [(Score(1.0, math.nan, 1.0), ArithmeticError), (1.0, TypeError)])
def test_a_score_that_is_none_is_an_error(
    value: object, error: type[Exception], qa: VideoQA, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def score(*arguments: object) -> object:
        return value

    monkeypatch.setattr(VideoZoomer, "score", score)
    with pytest.raises(error, match=r"VideoZoomer\.score"):
        reason(qa, RIGHT)
