"""Does the whole chain learn? Trains on the synthetic world, and measures every stage on held-out videos.

``python benchmarks/learning/run.py`` runs each system's chain (base model, cold start, for EVA KTO, GRPO) and one
changed key for each claim of a paper, on three seeds, with the recipes' own laptop jobs. What is finished stays: stop
it when you like, and the same command continues. ``--report`` only writes the tables and curves of what is there.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from agentic_video.config.compose import compose_recipe  # noqa: E402
from agentic_video.config.overrides import quoted  # noqa: E402
from agentic_video.launch.toyworld import build_toyworld  # noqa: E402
from agentic_video.report.losses import newest_checkpoint  # noqa: E402
from agentic_video.report.metrics import read_metrics, series  # noqa: E402
from agentic_video.systems.framethinker.consistency import ConsistencyRules, failed_checks  # noqa: E402
from agentic_video.systems.framethinker.grammar import read_steps  # noqa: E402
from agentic_video.systems.videobrain.reward import question_class  # noqa: E402
from agentic_video.toyworld.search_report import by_steps, summarize  # noqa: E402
from agentic_video.types.record import Record, read_records, write_record  # noqa: E402
from agentic_video.utils.environment import LAPTOP_ENV  # noqa: E402
from agentic_video.utils.errors import SetupError  # noqa: E402
from benchmarks.learning.cells import SIZE, STEPS, SYSTEMS, VARIANTS, Cell, Variant, cells  # noqa: E402
from benchmarks.learning.labels import labelled  # noqa: E402
from benchmarks.learning.report import SEARCHED, publish, write_report  # noqa: E402

HELD_OUT = 256
SAMPLED = 1.0
BOTH, SAMPLED_ONLY = {"sampled": SAMPLED, "greedy": 0.0}, {"sampled": SAMPLED}
"""Temperatures that a checkpoint is measured at."""
SEARCH_BUDGETS = ("agentic_video.system.max_calls", "agentic_video.system.max_turns", "data.max_response_length")
"""Keys of ``+profile=search``, which is GRPO's, that KTO needs: how long an episode may be."""
SAMPLES = 2
"""Episodes of each training question that KTO's are chosen from."""
LAST = 1_000_000
"""Saves only after the last step."""
CURVES = (
    "episode/reward_sampled",
    "episode/acc",
    "episode/tool_calls",
    "episode/frames",
    "episode/illegal_calls",
    "actor/pg_clipfrac",
    "actor/entropy",
)


class CellError(RuntimeError):
    """A job of a cell failed; the message names its log."""


def world_overrides(seed: int) -> list[str]:
    """A world and a cold start of their own for each seed, and enough held-out videos."""
    toy = "agentic_video.toyworld"
    return [f"++{toy}.seed={seed}", f"++{toy}.heldout={HELD_OUT}", f"++{toy}.cold_start.seed={100 * seed + 1}"]


def run(command: Sequence[str], folder: Path, log: Path) -> float:
    """Run a job, its output in a file; return its seconds."""
    started = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OUTPUT_DIR": str(folder)}
    environment.pop("VERL_PLATFORM", None)
    with log.open("a", encoding="utf-8") as file:
        status = subprocess.run(command, env=environment, cwd=REPOSITORY, stdout=file, stderr=file, check=False)
    if status.returncode:
        raise CellError(f"status {status.returncode}; see {log}")
    return time.monotonic() - started


def recipe_of(system: str) -> Path:
    """Folder of a system's recipe."""
    return REPOSITORY / "recipes" / system


def train(stage: str, system: str, overrides: Sequence[str], folder: Path) -> tuple[Path, Path, float]:
    """Run a stage of a recipe's laptop profile.

    Returns:
        The run's folder, its last checkpoint as a Hugging Face folder, and its seconds.
    """
    command = [sys.executable, "-m", "agentic_video.cli", "run", str(recipe_of(system)), stage]
    command += ["--profile", "laptop", *overrides]
    seconds = run(command, folder, folder / f"{stage}.log")
    title = system if stage == "grpo" else f"{system}-{stage}"
    ended = max((folder / f"{title}-laptop").glob("run-*"))
    checkpoint = newest_checkpoint(ended)
    if checkpoint is None:
        raise CellError(f"no checkpoint below {ended}")
    return ended, checkpoint, seconds


def measure(
    system: str, model: Path, overrides: Sequence[str], folder: Path, temperature: float, more: Sequence[str] = ()
) -> dict[str, Any]:
    """Play the held-out questions with a checkpoint.

    Returns:
        ``accuracy``, ``error`` (its standard error), ``answers`` (the grade of each question, in the order of their
        ids; None where not all were played), means per episode, ``calls`` by class of question, and ``illogical``, the
        share of episodes that fail FrameThinker's consistency check (None for other systems).
    """
    command = [sys.executable, "-m", "agentic_video.cli", "eval", "--recipe", str(recipe_of(system)), "--engine", "toy"]
    command += ["--profile", "laptop", "--model", str(model), "--temperature", str(temperature), "--out", str(folder)]
    run([*command, *overrides, *more], folder, folder / "eval.log")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    figures = {"accuracy": report["official"]["mean"], "error": report["official"]["error"]}
    figures |= {key: report["per_episode"][key]["mean"] for key in ("tool_calls", "frames", "turns", "illegal_calls")}
    calls: dict[str, list[int]] = {}
    illogical = []
    records = [record for journal in folder.glob("episodes-*.jsonl") for record in read_records(journal)]
    grades = {record.qa.id: record.rewards["acc"] for record in records}
    for record in records:
        calls.setdefault(question_class(record.qa), []).append(record.trajectory.tool_calls)
        if system == "framethinker":
            illogical.append(bool(failed_checks(read_steps(record.trajectory), ConsistencyRules())))
    figures["calls"] = {kind: statistics.fmean(made) for kind, made in sorted(calls.items())}
    searched = summarize(records)
    return {
        **figures,
        "answers": [grades[question] for question in sorted(grades)] if len(grades) == HELD_OUT else None,
        "illogical": statistics.fmean(illogical) if illogical else None,
        "searched": asdict(searched) if searched else None,
    }


def searched_by_step(run_folder: Path) -> dict[str, list[list[float]]]:
    """Search figures of a run's training episodes by step: steps and values by figure."""
    lines = by_steps(run_folder, 1)
    return {
        name: [list(pair) for pair in zip(*known, strict=True)]
        for name in SEARCHED
        if (
            known := [
                (step, value)
                for step, (_, searched) in enumerate(lines, 1)
                if (value := getattr(searched, name)) is not None
            ]
        )
    }


def once(file: Path, make: Any) -> Any:
    """Load a result from disk, or make and write it."""
    if not file.is_file():
        made = make()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".new").write_text(json.dumps(made, indent=1), encoding="utf-8")
        file.with_suffix(".new").rename(file)
    return json.loads(file.read_text(encoding="utf-8"))


def held_out(
    system: str, model: Path, overrides: Sequence[str], folder: Path, temperatures: Mapping[str, float]
) -> dict[str, Any]:
    """Figures of a checkpoint on the held-out questions at each temperature, by its name; each is measured once."""
    return {
        name: once(
            folder / f"{name}.json",
            lambda place=folder / name, temperature=temperature: measure(system, model, overrides, place, temperature),
        )
        for name, temperature in temperatures.items()
    }


def attempt(name: str, work: Callable[[], Any]) -> bool:
    """Do a cell's work; False if it failed, which is printed."""
    print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
    try:
        work()
    except (CellError, SetupError) as error:
        print(f"  failed: {error}", flush=True)
        return False
    return True


def set_environment() -> None:
    """Variables of all jobs: nothing is fetched, and this repository is imported before what PYTHONPATH names."""
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    os.environ.update({"HF_HUB_OFFLINE": LAPTOP_ENV["HF_HUB_OFFLINE"], "PYTHONPATH": path})


def search_preferences(system: str, paths: Mapping[str, str], world: Sequence[str], folder: Path) -> list[str]:
    """Sample and label episodes of a cold start in the world that must be searched; return overrides for KTO."""
    data = build_toyworld(recipe_of(system), world)["train"]
    records: list[Record] = []
    for seed in range(SAMPLES):
        place = folder / f"kto-sample-{seed}"
        measure(system, Path(paths["sft"]), world, place, SAMPLED, ["--data", data, "--seed", str(seed)])
        records += (record for journal in place.glob("episodes-*.jsonl") for record in read_records(journal))
    file = folder / "kto.jsonl"
    with file.open("w", encoding="utf-8") as written:
        for record in labelled(sorted(records, key=lambda record: record.qa.id)):
            write_record(written, record)
    searching = compose_recipe(recipe_of(system), "laptop", world)
    budgets = [f"{key}={OmegaConf.select(searching, key)}" for key in SEARCH_BUDGETS]
    files = quoted([file])
    return [*budgets, f"data.train_files={files}", f"data.val_files={files}", f"model.path={quoted(paths['sft'])}"]


def start_of(variant: Variant, seed: int, out: Path) -> dict[str, Any]:
    """The checkpoints before GRPO, shared by the variants of a system, cold start and seed, and their scores."""
    system, cold_start = variant.system, variant.cold_start
    folder = out / "starts" / f"{variant.start_name}-{seed}"
    world = [*variant.world, *world_overrides(seed)]

    def build() -> dict[str, Any]:
        started = time.monotonic()
        paths = build_toyworld(recipe_of(system), [*world, *variant.built])
        built = {"base": paths["base"], "sft": paths["model"]}
        seconds = {"build and SFT": time.monotonic() - started}
        return {"paths": built, "seconds": seconds}

    def prefer() -> dict[str, Any]:
        started = time.monotonic()
        overrides = search_preferences(system, start["paths"], world, folder) if variant.searched else world
        _, kto, _ = train("kto", system, overrides, folder)
        return {"path": str(kto), "seconds": time.monotonic() - started}

    start: dict[str, Any] = once(folder / "start.json", build)
    if variant.start == "kto":
        kto = once(folder / "kto.json", prefer)
        start["paths"]["kto"], start["seconds"]["KTO"] = kto["path"], kto["seconds"]
    measured = {"sft": SAMPLED_ONLY} if cold_start else dict.fromkeys(start["paths"], BOTH)
    start["stages"] = {
        stage: held_out(system, Path(start["paths"][stage]), [*world, *variant.evaluated], folder / stage, temperatures)
        for stage, temperatures in measured.items()
    }
    return start


def run_cell(cell: Cell, out: Path) -> dict[str, Any]:
    """Train and measure one cell."""
    variant: Variant = cell.variant
    start = start_of(variant, cell.seed, out)
    folder = out / "cells" / cell.name
    world = [*variant.world, *world_overrides(cell.seed)]

    def grpo() -> dict[str, Any]:
        steps = STEPS[variant.system]
        overrides = [
            *world,
            f"data.seed={cell.seed}",
            "trainer.val_before_train=False",
            "trainer.test_freq=-1",
            *([] if variant.searched else [*SIZE, f"trainer.total_training_steps={steps}"]),
            f"trainer.save_freq={LAST if variant.searched else steps}",
            f"actor_rollout_ref.model.path={quoted(start['paths'][variant.start])}",
            *variant.overrides,
        ]
        ended, checkpoint, seconds = train("grpo", variant.system, overrides, folder)
        metrics = read_metrics(ended)
        return {
            "checkpoint": str(checkpoint),
            "seconds": seconds,
            "curves": {key: series(metrics, key) for key in CURVES},
            "searched": searched_by_step(ended) if variant.searched else {},
        }

    trained: dict[str, Any] = once(folder / "grpo.json", grpo)
    model = Path(trained["checkpoint"])
    evaluated = [override for override in variant.overrides if override.startswith("agentic_video.")] + list(
        variant.evaluated
    )
    result = {
        "cell": cell.name,
        "system": variant.system,
        "variant": variant.name,
        "seed": cell.seed,
        "claim": variant.claim,
        "start": variant.start,
        "cold_start": variant.cold_start,
        "beside": variant.beside,
        **trained,
    }
    result["stages"] = {
        **start["stages"],
        "grpo": held_out(
            variant.system,
            model,
            [*world, *evaluated],
            folder,
            BOTH if variant.searched or variant.name == "chain" else SAMPLED_ONLY,
        ),
    }
    result["budgets"] = {
        name: once(
            folder / f"budget-{number}.json",
            lambda place=folder / f"budget-{number}", more=more: measure(
                variant.system, model, [*world, *more], place, SAMPLED
            ),
        )
        for number, (name, more) in enumerate(variant.budgets)
    }
    result["seconds_before"] = start["seconds"]
    return result


def main() -> int:
    """Command line; 1 if a cell failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("outputs/learning"), help="%(default)s")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS, help="'chain': no ablations")
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--publish", type=Path, metavar="DOCS", help="put the results into this folder's learning.md")
    arguments = parser.parse_args()
    out: Path = arguments.out.resolve()
    set_environment()
    failed = 0
    if not arguments.report:
        for cell in cells(arguments.systems, arguments.seeds, arguments.variants):
            file = out / "cells" / cell.name / "result.json"
            failed += not attempt(cell.name, partial(once, file, partial(run_cell, cell, out)))
            write_report(out)
    print(write_report(out))
    if arguments.publish:
        publish(out, arguments.publish)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
