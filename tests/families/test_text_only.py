"""Micro-batches without a picture in verl's forward: the vision tower takes part, as on ranks that have some."""

import subprocess
import sys

import pytest

from agentic_video.families.registry import FAMILY_OF

SCRIPT = "tests.families.text_only"
RANKS = ("torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m")


@pytest.mark.parametrize("launcher", [(), pytest.param(RANKS, marks=pytest.mark.slow)], ids=["alone", "two ranks"])
def test_the_tower_runs_without_a_picture(launcher: tuple[str, ...]) -> None:
    """In processes of their own: verl changes transformers' classes, and ranks that differ wait for ever."""
    command = [sys.executable, "-m", *launcher, SCRIPT, *FAMILY_OF]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert all(f"{family}: run" in done.stdout for family in FAMILY_OF)
