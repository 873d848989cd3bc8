from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from agentic_video.launch import job as working
from agentic_video.launch.laptop_fork.server import SWITCH
from agentic_video.launch.options import LaunchOptions
from tests.config.configs import RECIPES


def test_only_a_job_that_is_all_here_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, str]] = []

    @contextmanager
    def server(environment: Mapping[str, str]) -> Iterator[str]:
        asked.append(environment)
        yield "forks"

    monkeypatch.setattr(working, "fork_server", server)
    grpo, sft = LaunchOptions(RECIPES / "eva"), LaunchOptions(RECIPES / "eva", "sft")
    cases: list[tuple[LaunchOptions, Any, dict[str, str]]] = [
        (grpo, "laptop", {"A": "1"}),
        (replace(grpo, dry_run=True), "laptop", {}),
        (grpo, "laptop", {SWITCH: "0"}),
        (grpo, "laptop", {"RAY_ADDRESS": "10.0.0.1:6379"}),
        (grpo, "rehearsal", {}),
        (grpo, "cluster", {}),
        (sft, "laptop", {}),
    ]
    found = []
    for options, profile, environment in cases:
        with working.job_forks(options, profile, environment) as forks:
            found.append(forks)
    assert found == ["forks", *[None] * 6]
    # what is imported reads the variables of the job's processes
    (environment,) = asked
    assert environment["A"] == "1" and environment["VERL_PLATFORM"] == "cpu" and environment["OMP_NUM_THREADS"] == "1"
