"""Runs that are made to collapse, each in a known way, and say so."""

from pathlib import Path

import pytest

from agentic_video.report.collapse import WARNING
from agentic_video.report.summary import read_metrics, series
from tests.e2e.test_recipes_laptop import run

REWARDS = Path(__file__).with_name("collapse_rewards.py")
ALL_GROUPS = "algorithm.filter_groups.enable=False"
"""Groups whose rewards are all the same are what a collapse comes to."""

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(3600)]


def paid(name: str) -> list[str]:
    return [f"agentic_video.reward.path={REWARDS}", f"agentic_video.reward.name={name}", ALL_GROUPS]


@pytest.mark.parametrize(
    ("sign", "overrides"),
    [
        ("calls_die_out", paid("no_calls")),
        ("calls_without_use", paid("many_calls")),
        ("format_drifts", paid("refused_calls")),
        ("length_grows", paid("many_words")),
        ("entropy_is_gone", [*paid("no_calls"), "actor_rollout_ref.actor.optim.lr=0.01"]),
        ("entropy_explodes", ["actor_rollout_ref.actor.entropy_coeff=1.0", ALL_GROUPS]),
        (
            "engine_and_actor_differ",
            [
                "actor_rollout_ref.rollout.logprobs_mode=raw_logprobs",
                "actor_rollout_ref.rollout.temperature=2.0",
                ALL_GROUPS,
            ],
        ),
    ],
)
def test_a_run_that_collapses_says_so(sign: str, overrides: list[str], tmp_path: Path) -> None:
    made = run("bash recipes/videozoomer/run_grpo.sh --profile laptop", tmp_path, *overrides)
    steps, values = series(read_metrics(made), f"collapse/{sign}")
    assert steps and max(values) == 1.0, read_metrics(made)
    assert WARNING in (made / "log.txt").read_text(encoding="utf-8")
