"""Clips from end to end: real vLLM engines against the models themselves, and laptop jobs that show clips."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentic_video.report.metrics import read_metrics, series
from agentic_video.types.record import read_records
from agentic_video.types.trajectory import ClipRef
from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV
from tests.e2e.test_recipes_laptop import STEPS, run
from tests.toyworld.conftest import any_checkpoint, tokenizer

__all__ = ["any_checkpoint", "tokenizer"]

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.e2e
@pytest.mark.timeout(1800)
def test_references_give_what_pixels_and_the_model_give(any_checkpoint: Path) -> None:
    """In a process of its own, which ends by force: after an engine in its own process Python didn't end by itself."""
    command = [sys.executable, "-m", "tests.e2e.clips", str(any_checkpoint)]
    environment = {**os.environ, **COMMON_ENV, **LAPTOP_ENV}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


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
