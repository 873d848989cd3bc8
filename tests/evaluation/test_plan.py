"""Token budgets, and the progress bar."""

import pytest

from agentic_video.evaluation.baseline import Baseline
from agentic_video.evaluation.plan import fit_limits
from agentic_video.evaluation.progress import progress
from agentic_video.evaluation.results import Failure
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.videozoomer.system import VideoZoomer
from tests.evaluation.records import record


def test_budgets_of_a_single_turn_hold_many_frames() -> None:
    limits = TokenLimits(prompt=8_000, response=8_000, turn=4_000)
    assert fit_limits(VideoZoomer(), limits) == limits
    assert fit_limits(Baseline(4), limits) == TokenLimits(prompt=13_952, response=2_048, turn=2_048)


def test_progress_counts_from_where_an_earlier_run_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(3, [record("a", acc=1.0), record("b", seconds=1.0)]) as done:
        for result in (record("c", acc=0.0), record("d", acc=0.0), Failure(("s", "e"), "gone")):
            done(result)
    bar = capsys.readouterr().err
    assert "2/5" in bar and "5/5" in bar and "33.3 %" in bar and "failed 1" in bar
