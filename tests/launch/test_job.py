from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from agentic_video.launch import job as working
from agentic_video.launch.fork_server import SWITCH
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
    cases: list[tuple[LaunchOptions, Any, dict[str, str], bool]] = [
        (grpo, "laptop", {"A": "1"}, True),
        (grpo, "laptop", {}, False),
        (grpo, "laptop", {SWITCH: "0"}, True),
        (grpo, "laptop", {"RAY_ADDRESS": "10.0.0.1:6379"}, True),
        (grpo, "rehearsal", {}, True),
        (grpo, "cluster", {}, True),
        (sft, "laptop", {}, True),
    ]
    found = []
    for options, profile, environment, runs_here in cases:
        with working.job_forks(options, profile, environment, runs_here=runs_here) as forks:
            found.append(forks)
    assert found == ["forks", *[None] * 6]
    # what is imported reads the variables of the job's processes
    (environment,) = asked
    assert environment["A"] == "1" and environment["VERL_PLATFORM"] == "cpu" and environment["OMP_NUM_THREADS"] == "1"
