from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from agentic_video.launch import job as working
from agentic_video.launch.fork_server import SWITCH
from agentic_video.launch.options import LaunchOptions
from tests.config.configs import RECIPES, composed, set_environment


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


def test_what_a_run_asks_of_a_cluster_beside_the_trainer_s_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)
    rollouts = [f"actor_rollout_ref.rollout.{size}" for size in ("nnodes=2", "n_gpus_per_node=4")]
    model = [f"reward.reward_model.{size}" for size in ("enable_resource_pool=True", "nnodes=1", "n_gpus_per_node=2")]
    assert working.gpus_beside(composed("videozoomer", "cluster", *rollouts)) == {}
    separate = "trainer.v1.trainer_mode=agentic_video_separate_async"
    assert working.gpus_beside(composed("videozoomer", "cluster", separate, *rollouts, *model)) == {
        "actor_rollout_ref.rollout": 8,
        "reward.reward_model": 2,
    }
