"""Does a method of training find search sooner than GRPO does? One command a method, some minutes a seed.

    python -m benchmarks.methods.run grpo
    python -m benchmarks.methods.run gspo
    python -m benchmarks.methods.run mine actor_rollout_ref.model.external_lib=my_losses \\
        actor_rollout_ref.actor.policy_loss.loss_mode=mine
    python -m benchmarks.methods.run --publish docs

VideoZoomer's laptop job in the world that must be searched (``+profile=search``): each method gets the same cold
starts, questions and number of steps. A seed is a world, a cold start and a training of its own. What is finished
stays: stop it when you like, and the same command continues. Without a method it only writes the table and the curves
of what is there.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agentic_video.config.compose import METHOD
from agentic_video.config.overrides import quoted
from agentic_video.launch.toyworld import build_toyworld
from agentic_video.report.metrics import read_metrics, series
from benchmarks.learning.cells import SEARCH
from benchmarks.learning.run import (
    BOTH,
    LAST,
    REPOSITORY,
    CellError,
    attempt,
    held_out,
    once,
    recipe_of,
    searched_by_step,
    set_environment,
    train,
    world_overrides,
)
from benchmarks.methods.report import PLAIN, publish, write_report

SYSTEM = "videozoomer"
QUESTIONS, UPDATES = 12, 2
STEPS = 20
BUDGET = (
    f"data.train_batch_size={QUESTIONS}",
    f"actor_rollout_ref.actor.ppo_mini_batch_size={QUESTIONS // UPDATES}",
    f"trainer.total_training_steps={STEPS}",
    f"trainer.save_freq={LAST}",
    *("trainer.val_before_train=False", "trainer.test_freq=-1"),
)
"""What is the same for all methods: half of the profile's questions a step, half of its steps."""

# Dr. GRPO divides by a constant: an episode's own tokens here. The longest response, mostly frames, is nine times that.
_DR_GRPO = ("actor_rollout_ref.actor.loss_scale_factor=40",)
METHODS: dict[str, tuple[str, ...]] = {
    PLAIN: (),
    "no_refills": ("algorithm.filter_groups.enable=False",),
    "no_kl": ("actor_rollout_ref.actor.use_kl_loss=False",),
    **{
        file.stem: (f"{METHOD}{file.stem}", *(_DR_GRPO if file.stem == "dr_grpo" else ()))
        for file in sorted((REPOSITORY / "agentic_video" / "config" / "method").glob("*.yaml"))
        if file.stem != "distillation"  # from a teacher, not from rewards
    },
}
"""Overrides by name: GRPO as the profile has it, the same without a part (refills of groups that teach nothing, the KL
penalty), and each ``+method=``."""


def cold_start(seed: int, out: Path) -> dict[str, Any]:
    """The checkpoint that each method starts from on a seed, and its figures."""
    folder = out / "starts" / str(seed)
    world = [SEARCH, *world_overrides(seed)]
    start: dict[str, Any] = once(
        folder / "start.json", lambda: {"model": build_toyworld(recipe_of(SYSTEM), world)["model"]}
    )
    return {"model": start["model"], "before": held_out(SYSTEM, Path(start["model"]), world, folder, BOTH)}


def batches_played(metrics: Mapping[int, Mapping[str, float]]) -> float:
    """Batches of questions that a step played: its own, those that were replaced and those that came too late."""
    more = sum(
        sum(series(metrics, f"training/filter_groups/{kind}_samples")[1]) for kind in ("evicted", "discarded_surplus")
    )
    return 1 + more / QUESTIONS / len(metrics)


def run_cell(method: str, overrides: Sequence[str], seed: int, out: Path) -> dict[str, Any]:
    """Train with a method on one seed, and measure what came of it."""
    start, folder = cold_start(seed, out), out / "cells" / f"{method}-{seed}"
    world = [SEARCH, *world_overrides(seed)]

    def trained() -> dict[str, Any]:
        model = f"actor_rollout_ref.model.path={quoted(start['model'])}"
        ended, checkpoint, seconds = train(
            "grpo", SYSTEM, [*world, *BUDGET, f"data.seed={seed}", model, *overrides], folder
        )
        return {
            "checkpoint": str(checkpoint),
            "seconds": seconds,
            "played": batches_played(read_metrics(ended)),
            "searched": searched_by_step(ended),
        }

    result: dict[str, Any] = {
        "cell": folder.name,
        "method": method,
        "seed": seed,
        "steps": STEPS,
        "overrides": list(overrides),
    }
    result |= once(folder / "grpo.json", trained)
    after = held_out(SYSTEM, Path(result["checkpoint"]), world, folder, BOTH)
    return {**result, "before": start["before"], "after": after}


def finish(method: str, overrides: Sequence[str], seed: int, out: Path) -> None:
    """Run a method's seed unless it is finished."""
    folder, keys = out / "cells" / f"{method}-{seed}", [*BUDGET, *overrides]
    if once(folder / "keys.json", lambda: keys) != keys:
        raise CellError(f"{folder} was begun with other keys: choose another name, or remove the folder")
    once(folder / "result.json", lambda: run_cell(method, overrides, seed, out))


def main() -> int:
    """Command line; 1 if a seed failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", nargs="?", help=f"{', '.join(METHODS)}, or a new name with its overrides")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="the recipe's overrides of a new method")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--out", type=Path, default=Path("outputs/methods"), help="%(default)s")
    parser.add_argument("--publish", type=Path, metavar="DOCS", help="put the results into this folder's methods.md")
    arguments = parser.parse_intermixed_args()
    method: str | None = arguments.method
    if method is not None and (method in METHODS) == bool(arguments.overrides):
        parser.error(f"{method}: one of {', '.join(METHODS)}, or another name with KEY=VALUE")
    out: Path = arguments.out.resolve()
    set_environment()
    failed = 0
    if method is not None:
        overrides = arguments.overrides or METHODS[method]
        for seed in arguments.seeds:
            failed += not attempt(f"{method}-{seed}", partial(finish, method, overrides, seed, out))
    print(write_report(out))
    if arguments.publish:
        publish(out, arguments.publish)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
