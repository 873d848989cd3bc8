"""Runs that are made to collapse, each in a known way, and say so."""

from pathlib import Path

import pytest

from agentic_video.report.collapse import WARNING
from agentic_video.report.metrics import read_metrics, series
from tests.e2e.test_recipes_laptop import run

REWARDS = Path(__file__).with_name("collapse_rewards.py")
JOB = "bash recipes/videozoomer/run_grpo.sh --profile laptop"
ALL_GROUPS = "algorithm.filter_groups.enable=False"
"""Groups whose rewards are all the same are what a collapse comes to."""
RATE = "actor_rollout_ref.actor.optim.lr"
CARELESS = [
    "actor_rollout_ref.actor.optim.lr_warmup_steps=0",
    "actor_rollout_ref.actor.optim.lr_scheduler_type=constant",
    "actor_rollout_ref.actor.optim.clip_grad=1.0",
    "actor_rollout_ref.actor.use_kl_loss=False",
]
"""Without what the recipe does against collapse."""

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(3600)]


def paid(name: str) -> list[str]:
    return [f"agentic_video.reward.path={REWARDS}", f"agentic_video.reward.name={name}"]


def check_it_says(made: Path, *signs: str) -> None:
    metrics = read_metrics(made)
    for sign in signs:
        steps, values = series(metrics, f"collapse/{sign}")
        assert steps and max(values) == 1.0, (sign, metrics)
    assert WARNING in (made / "log.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("signs", "overrides"),
    [
        (["calls_die_out"], [*paid("no_calls"), ALL_GROUPS]),
        # within four steps, before there is anything to compare with
        (["format_drifts"], [*paid("no_calls"), ALL_GROUPS, *CARELESS, f"{RATE}=0.01"]),
        # at temperature 1 it begins with so little that nothing takes a tenth of it
        (
            ["entropy_is_gone"],
            [
                "actor_rollout_ref.rollout.temperature=1.5",
                "actor_rollout_ref.actor.entropy_coeff=-10.0",
                f"{RATE}=4e-3",
                *CARELESS,
                ALL_GROUPS,
                "trainer.total_training_steps=30",
            ],
        ),
        (["entropy_explodes"], ["actor_rollout_ref.actor.entropy_coeff=1.0", f"{RATE}=1e-3", ALL_GROUPS]),
        (
            ["engine_and_actor_differ"],
            [f"actor_rollout_ref.rollout.{key}" for key in ("logprobs_mode=raw_logprobs", "temperature=2.0")]
            + [ALL_GROUPS],
        ),
    ],
    ids=["calls", "rate", "certainty", "entropy", "engine"],
)
def test_a_run_that_collapses_says_so(signs: list[str], overrides: list[str], tmp_path: Path) -> None:
    check_it_says(run(JOB, tmp_path, *overrides), *signs)


def test_a_run_that_has_nothing_to_learn_any_more_ends(tmp_path: Path) -> None:
    """As the recipe is, with its groups filtered: verl alone would look for one that isn't alike for ever."""
    made = run(JOB, tmp_path, *paid("nothing"))
    check_it_says(made, "nothing_to_learn")
    metrics = read_metrics(made)
    assert set(series(metrics, "episode/groups_alike")[1]) == {1.0}
    # of the two batches of four groups in each of the steps
    assert series(metrics, "training/filter_groups/evicted_samples")[1] == [4.0] * 20


def test_calls_that_are_paid_where_they_do_not_help(tmp_path: Path) -> None:
    """From a cold start that mostly guesses at once, so that calls, and with them responses, can grow."""
    toyworld = "++agentic_video.toyworld"
    unfit = [f"{toyworld}.gate.{key}=-1" for key in ("grammar", "perception", "margin", "saw_event")]
    shy = [f"{toyworld}.cold_start.direct=0.9", *unfit]
    made = run(JOB, tmp_path, *paid("useless_calls"), ALL_GROUPS, *CARELESS, *shy)
    check_it_says(made, "calls_without_use", "length_grows")
