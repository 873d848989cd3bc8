"""``agentic-video eval``: play a benchmark with a system and a model, and report.

    agentic-video eval --system videozoomer --benchmark mlvu_dev --data mlvu_dev.jsonl --model CHECKPOINT --out DIR

The same command goes on where it was killed. ``key=value`` arguments are Hydra overrides of the recipe's config.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentic_video.evaluation.backends.base import Backend
    from agentic_video.evaluation.plan import Plan
    from agentic_video.evaluation.results import Failure
    from agentic_video.rollout.tokens import TokenLimits
    from agentic_video.systems.base import System
    from agentic_video.types.record import Record
    from agentic_video.types.row import VideoQA


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``agentic-video eval``."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--system", help="name of a recipe in ./recipes, e.g. videozoomer")
    which.add_argument("--recipe", type=Path, help="folder of a recipe, e.g. recipes/videozoomer")
    parser.add_argument("--profile", choices=("laptop", "cluster"), help="default: laptop with the tiny model's engine")
    parser.add_argument("--model", default=os.environ.get("MODEL_PATH"),
                        help="folder of a checkpoint, or address of an OpenAI-compatible server (http://host:8000/v1); "
                             "default: MODEL_PATH, else the tiny model of the laptop profile (with --baseline "
                             "the one it began as)")  # fmt: skip
    parser.add_argument("--model-name", default="", help="name of the model on the server, where it has several")
    parser.add_argument("--engine", choices=("auto", "chat", "vllm", "toy"), default="auto")
    parser.add_argument("--data", type=Path, action="append", default=[],
                        help="parquet or jsonl file of rows; may be repeated; default: the synthetic held-out rows "
                             "(laptop profile)")  # fmt: skip
    parser.add_argument(
        "--benchmark", default="", help="name for the report; published numbers go by it, e.g. mlvu_dev"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the evaluation; default: RECIPE-eval/BENCHMARK/... in OUTPUT_DIR, or in outputs",
    )
    parser.add_argument("--no-tools", action="store_true", help="the same overview, and one turn, which must answer")
    parser.add_argument(
        "--baseline", type=int, metavar="N", help="N uniform frames and the question, in place of the system"
    )
    parser.add_argument("--sweep", nargs=2, metavar=("KIND", "VALUES"),
                        help="evaluate once for each value: frames 8,16,32 or calls 0,1,2,4")  # fmt: skip
    parser.add_argument("--temperature", type=float, help="default: the recipe's val_kwargs")
    parser.add_argument("--top-p", type=float, help="default: the recipe's val_kwargs")
    parser.add_argument("--seed", type=int, default=0, help="of sampling; -1 sends none, for servers that refuse it")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="only the first N rows")
    parser.add_argument("--concurrency", type=int, default=32, help="episodes at a time, in each shard (%(default)s)")
    parser.add_argument("--shards", type=int, help="parallel processes, each with its own engine; default: one for "
                        "each GPU, or each group of them that tensor parallelism needs")  # fmt: skip
    parser.add_argument("--api-key-env", default="OPENAI_API_KEY", help="variable that holds the server's key")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate.

    Args:
        arguments: What :func:`add_arguments` reads, and ``overrides``, a list of Hydra overrides.

    Returns:
        Exit status: 0 when every question was played, 1 when some couldn't be, 2 when nothing could start.
    """
    from agentic_video.launch.profile import LaunchError
    from agentic_video.types.row import RowError
    from agentic_video.utils.devices import count_gpus
    from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV
    from agentic_video.utils.errors import SetupError

    gpus = count_gpus()
    for name, value in {**COMMON_ENV, **({} if gpus else LAPTOP_ENV)}.items():
        os.environ.setdefault(name, value)
    from hydra.errors import HydraException
    from omegaconf.errors import InterpolationResolutionError

    try:
        return _evaluate(arguments, gpus)
    except InterpolationResolutionError as error:
        print(f"error: {error}\nset that variable, or the key itself: {error.full_key}=...", file=sys.stderr)
        return 2
    except (SetupError, RowError, LaunchError, HydraException, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130


@dataclass(frozen=True)
class _Part:
    """One evaluation: the whole command, or one value of its sweep."""

    folder: Path
    title: str
    system: "System"
    limits: "TokenLimits"
    value: int | None = None


def _evaluate(arguments: argparse.Namespace, gpus: int) -> int:
    from agentic_video.config.compose import compose_recipe
    from agentic_video.config.settings import limits_of, settings_of
    from agentic_video.datasets.rows import load_rows
    from agentic_video.evaluation.model import choose_engine
    from agentic_video.evaluation.plan import Plan
    from agentic_video.evaluation.results import distinct
    from agentic_video.launch.toyworld import build_toyworld, laptop_overrides
    from agentic_video.utils.environment import output_folder
    from agentic_video.utils.errors import SetupError
    from agentic_video.video.retrieval.config import RetrievalConfig

    bad = [text for text in arguments.overrides if "=" not in text and not text.startswith("~")]
    if bad:
        raise SetupError(f"not an option and not a Hydra override (key=value): {bad[0]}")
    for name in ("concurrency", "shards"):
        if getattr(arguments, name) is not None and getattr(arguments, name) < 1:
            raise SetupError(f"--{name} must be at least 1")
    recipe = (arguments.recipe or find_recipe(arguments.system)).resolve()
    if not (recipe / "config").is_dir():
        raise SetupError(f"{recipe}: no recipe (a folder with config/laptop.yaml or config/cluster.yaml)")
    model, data, overrides = arguments.model, list(arguments.data), list(arguments.overrides)
    engine = choose_engine(model, arguments.engine, gpus) if model else "toy"
    profile = arguments.profile or ("laptop" if engine == "toy" else "cluster")
    if profile == "laptop" and not (model and data):
        # Who has learnt a system's grammar can't answer without it, if it is as small as the tiny model.
        plain = arguments.baseline is not None
        paths = build_toyworld(recipe, overrides, cold_start=not model and not plain)
        model = model or paths["base" if plain else "model"]
        overrides = [*laptop_overrides({**paths, "model": model}), *overrides]
        data = data or [Path(paths["heldout"])]
        engine = choose_engine(model, arguments.engine, gpus)
    if not model or not data:
        raise SetupError("name a model with --model and rows with --data")

    config = compose_recipe(recipe, profile, overrides)
    settings, limits = settings_of(config), limits_of(config)
    benchmark = arguments.benchmark or data[0].stem
    rows, problems = load_rows(data)
    rows, repeated = distinct(rows)
    for problem in [*problems, *repeated][:10]:
        print(f"row left out: {problem}", file=sys.stderr)
    if problems or repeated:
        print(f"{len(problems) + len(repeated)} rows left out", file=sys.stderr)
    if arguments.limit > 0:
        rows = rows[: arguments.limit]

    spec = model_spec(arguments, config, engine, model)
    system, title = settings.system, settings.system.name
    if arguments.baseline is not None:
        system = baseline_of(system, arguments.baseline, tiny=engine == "toy")
        title = f"baseline of {arguments.baseline} frames"
    elif arguments.no_tools:
        system, title = system.direct(), f"{title} without tools"
    variant = f"baseline-{arguments.baseline}" if arguments.baseline else "no-tools" if arguments.no_tools else "agent"
    below = "sweep" if arguments.sweep else variant
    out = (arguments.out or output_folder(os.environ) / f"{recipe.name}-eval" / benchmark / below).resolve()
    parts = parts_of(arguments, system, title, limits, out)

    def plan_of(part: _Part) -> Plan:
        return Plan(
            folder=part.folder,
            system=part.system,
            # one engine plays all parts
            model=fit_images(spec, max(one.system.max_images for one in parts)),
            limits=part.limits,
            frame_store=settings.frame_store,
            retrieval=RetrievalConfig() if arguments.baseline is not None else settings.retrieval,
            judge=settings.judge,
            concurrency=arguments.concurrency,
            provenance={
                "model": spec.chat.model or model,
                "engine": engine,
                "benchmark": benchmark,
                "evaluated": part.title,
            },
        )

    shards = count_shards(arguments.shards, engine, int(spec.vllm.get("tensor_parallel_size", 1)), gpus)
    identity = {"data": [str(path.resolve()) for path in data], "benchmark": benchmark, "model": model}
    return play_parts(parts, plan_of, rows, identity, shards, benchmark, arguments.sweep)


def parts_of(
    arguments: argparse.Namespace, system: "System", title: str, limits: "TokenLimits", out: Path
) -> list[_Part]:
    """The evaluations that a command asks for.

    Raises:
        SetupError: A sweep that the system doesn't have.
    """
    from agentic_video.evaluation.sweep import read_values, swept

    if not arguments.sweep:
        return [_Part(out, title, system, fit_limits(system, limits))]
    kind, text = arguments.sweep
    curve = "baseline" if arguments.baseline is not None else "no-tools" if arguments.no_tools else "agent"
    parts = []
    for value in read_values(kind, text):
        changed = swept(system, kind, value)
        folder = out / f"{kind}-{curve}-{value:03d}"
        parts.append(_Part(folder, f"{system.name}, {kind} {value}", changed, fit_limits(changed, limits), value))
    return parts


def count_shards(asked: int | None, engine: str, gpus_each: int, gpus: int) -> int:
    """How many processes play: as many as asked, else one for each group of GPUs of this machine or Ray's cluster."""
    if asked is not None or engine != "vllm":
        return asked or 1
    if os.environ.get("RAY_ADDRESS"):
        import ray

        ray.init(ignore_reinit_error=True)
        gpus = int(ray.cluster_resources().get("GPU", 0))
    return max(1, gpus // gpus_each)


def play_parts(
    parts: Sequence[_Part],
    plan_of: "Callable[[_Part], Plan]",
    rows: "Sequence[VideoQA]",
    identity: dict[str, Any],
    shards: int,
    benchmark: str,
    sweep: Sequence[str] | None,
) -> int:
    """Play, report, draw."""
    from agentic_video.evaluation.report import write_report
    from agentic_video.evaluation.results import claim_folder, failures, finished, key_of
    from agentic_video.evaluation.sweep import point

    points, status = [], 0
    wanted = {key_of(qa) for qa in rows}
    # One event loop for all parts: an engine belongs to the loop in which it was made.
    with asyncio.Runner() as runner:
        backend: Backend | None = None
        try:
            for part in parts:
                plan = plan_of(part)
                sampling = {"temperature": plan.model.temperature, "top_p": plan.model.top_p, "seed": plan.model.seed}
                system = {"class": type(part.system).__qualname__, **asdict(part.system)}  # type: ignore[call-overload]
                claim_folder(
                    part.folder, {**identity, "system": system, "limits": asdict(part.limits), "sampling": sampling}
                )
                records, torn = finished(part.folder)
                for problem in torn:
                    print(f"no episode, its question is played again: {problem}", file=sys.stderr)
                done = {key_of(record.qa) for record in records}
                missing = [qa for qa in rows if key_of(qa) not in done]
                print(
                    f"{part.title}: {len(rows)} questions, {len(rows) - len(missing)} already played", file=sys.stderr
                )
                if missing and shards == 1:
                    backend = backend or runner.run(_make_backend(plan))
                _play(plan, missing, [record for record in records if key_of(record.qa) in wanted], len(rows), shards,
                      runner, backend)  # fmt: skip
                records = [record for record in finished(part.folder)[0] if key_of(record.qa) in wanted]
                played = {key_of(record.qa) for record in records}
                failed = [one for one in failures(part.folder) if one.key in wanted and one.key not in played]
                result, text = write_report(part.folder, f"{part.title} on {benchmark}", benchmark, records, failed)
                print(text)
                print(f"report: {part.folder / 'report.md'}")
                status = status or int(len(records) < len(rows))
                if part.value is not None and (one := point(part.value, result)) is not None:
                    points.append(one)
        finally:
            if backend is not None:
                backend.close()
    if sweep and points:
        print(f"picture: {_draw(parts[0].folder.parent, sweep[0], benchmark)}")
    return status


async def _make_backend(plan: "Plan") -> "Backend":
    from agentic_video.evaluation.backends.make import make_backend

    return make_backend(plan.model, int(getattr(plan.system, "size_factor", 28)))


def _play(
    plan: "Plan",
    rows: "Sequence[VideoQA]",
    before: "Sequence[Record]",
    total: int,
    shards: int,
    runner: asyncio.Runner,
    backend: "Backend | None",
) -> None:
    """Play what is missing, with a progress bar."""
    from tqdm import tqdm

    from agentic_video.evaluation.results import FAILURES
    from agentic_video.evaluation.runner import play_rows
    from agentic_video.evaluation.shards import play_sharded
    from agentic_video.types.record import Record

    for stale in plan.folder.glob(FAILURES):
        stale.unlink()
    if not rows:
        return
    grades = [record.rewards["acc"] for record in before if "acc" in record.rewards]
    failed = 0
    with tqdm(total=total, initial=total - len(rows), unit="episode", smoothing=0.05) as bar:

        def done(one: "Record | Failure") -> None:
            nonlocal failed
            if isinstance(one, Record):
                grades.extend([one.rewards["acc"]] if "acc" in one.rewards else [])
            else:
                failed += 1
            shown = f"accuracy {100 * sum(grades) / len(grades):.1f} %" if grades else "nothing graded"
            bar.set_postfix_str(shown + (f", failed {failed}" if failed else ""), refresh=False)
            bar.update()

        if shards == 1:
            runner.run(play_rows(plan, rows, 0, done, backend))
        else:
            play_sharded(plan, rows, shards, done)


def _draw(out: Path, kind: str, benchmark: str) -> Path:
    """The picture of all sweeps of one kind that a folder holds: a baseline's beside an agent's, say."""
    from agentic_video.evaluation.sweep import draw, point

    curves: dict[str, list[Any]] = {}
    for folder in sorted(out.glob(f"{kind}-*-*")):
        name, _, value = folder.name.removeprefix(f"{kind}-").rpartition("-")
        file = folder / "report.json"
        if value.isdigit() and file.is_file():
            found = point(int(value), json.loads(file.read_text(encoding="utf-8")))
            curves.setdefault(name, []).extend([found] if found else [])
    for points in curves.values():
        points.sort(key=lambda one: one.value)
    picture = out / f"sweep-{kind}.png"
    draw(kind, curves, benchmark, picture)
    return picture
