import shlex
from pathlib import Path

import pytest

from agentic_video.launch.profile import LaunchError
from agentic_video.launch.submit import entrypoint, submit_job

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "videozoomer"


def test_the_job_runs_the_recipe_in_its_own_copy() -> None:
    command = shlex.split(entrypoint(RECIPE, "cluster", ["trainer.total_epochs=2", "a='x y'"], "/env/bin/python"))
    assert command == [
        "/env/bin/python", "-m", "agentic_video.launch.main", "recipes/videozoomer", "--profile", "cluster",
        "trainer.total_epochs=2", "a='x y'",
    ]  # fmt: skip


def test_address_is_needed_and_must_answer() -> None:
    with pytest.raises(LaunchError, match="RAY_ADDRESS"):
        submit_job(RECIPE, "laptop", [], {})
    with pytest.raises(LaunchError, match="no Ray cluster answers"):
        submit_job(RECIPE, "laptop", [], {"RAY_ADDRESS": "http://127.0.0.1:1"})
