"""Laptop jobs that show clips."""

import json
from pathlib import Path

import pytest

from agentic_video.report.metrics import read_metrics, series
from agentic_video.types.record import read_records
from agentic_video.types.trajectory import ClipRef
from tests.e2e.test_recipes_laptop import STEPS, run


@pytest.mark.recipes
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("system", ["framemind", "videobrain", "videoo3"])
def test_a_job_that_shows_clips(system: str, tmp_path: Path) -> None:
    """A Qwen2.5-VL, whose clips have their times in positions, and a Qwen3-VL, whose clips have them as text."""
    made = run(f"bash recipes/{system}/run_grpo.sh", tmp_path, STEPS, "agentic_video.system.frames_as=video")
    steps, differences = series(read_metrics(made), "training/rollout_probs_diff_mean")
    assert steps == [1, 2] and max(differences) < 1e-4
    records = [record for file in sorted((made / "episodes").glob("step_*.jsonl")) for record in read_records(file)]
    assert records
    for record in records:
        assert any(isinstance(shown, ClipRef) for shown in record.trajectory.visuals), json.dumps(
            record.trajectory.to_dict()
        )
