"""An evaluation from its options to its report: play the missing questions, grade, report, draw.

A question's path: :func:`evaluate` here, :func:`~agentic_video.evaluation.runner.play_rows` in this process or, in
each shard, behind :func:`~agentic_video.evaluation.shards.play_sharded`.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from agentic_video.config.compose import compose_recipe
from agentic_video.config.features import PROCESSOR_ARGUMENTS, processor_problem
from agentic_video.config.settings import Settings, limits_of, settings_of
from agentic_video.datasets.rows import load_rows, placed_rows, reported
from agentic_video.evaluation.ablations import without_tools
from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.backends.make import backend_class, make_backend
from agentic_video.evaluation.baseline import baseline_of
from agentic_video.evaluation.context import require_encoder
from agentic_video.evaluation.fitting import FirstViews, NothingFits
from agentic_video.evaluation.model import (
    SERVED,
    ModelSpec,
    check_taught,
    fit_images,
    list_models,
    model_spec,
    require_model,
    warn_of_name,
)
from agentic_video.evaluation.options import EvalOptions, Variant, check_files
from agentic_video.evaluation.plan import EvalPlan, fit_limits
from agentic_video.evaluation.progress import EvalProgress, eval_progress, progress, ungraded
from agentic_video.evaluation.report import write_report
from agentic_video.evaluation.required_frames import measure
from agentic_video.evaluation.results import (
    REVISION,
    SETTINGS_FILE,
    ExcludedRow,
    Failure,
    claim_folder,
    distinct,
    excluded_row,
    failures,
    finished,
    forget_failures,
    key_of,
    read_settings,
    revision_of,
    same_gold,
    same_settings,
)
from agentic_video.evaluation.runner import grade_again, play_rows
from agentic_video.evaluation.shards import count_shards, play_sharded
from agentic_video.evaluation.submission import write_submissions
from agentic_video.evaluation.suites import JUDGED
from agentic_video.evaluation.sweep import Point, draw, folder_name, point, read_curves, swept
from agentic_video.families.base import ProcessorRules
from agentic_video.graders.captions import is_caption
from agentic_video.planning.pictures import check_engine_room, fitted_system, opening_pictures, size_notes
from agentic_video.planning.published_checkpoints import checkpoint_rules
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import System
from agentic_video.systems.needs import OPEN_ENDED, judged
from agentic_video.systems.prompts import load_prompt, packaged_prompts
from agentic_video.systems.shown import shows_clips
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.text import printable
from agentic_video.utils.content import checkpoint_digest
from agentic_video.utils.errors import SetupError
from agentic_video.utils.imports import make_importable
from agentic_video.utils.workdir import write_whole
from agentic_video.video.retrieval.config import RetrievalConfig


@dataclass(frozen=True)
class Part:
    """The whole evaluation, or one value of a sweep."""

    folder: Path
    title: str  # as the report names it
    system: System
    limits: TokenLimits
    value: int | None = None  # of the sweep


@dataclass(frozen=True)
class PartResult:
    """Result of a part."""

    part: Part
    figures: Mapping[str, Any]  # see report.figures
    missing: int  # questions that couldn't be played
    excluded: int = 0  # rows of the data files that are no questions
    ungraded: int = 0  # episodes that the judge didn't grade; 0 without a judge

    @property
    def complete(self) -> bool:
        """Return True if every row of the data files was played, and graded where it could be."""
        return not self.missing and not self.excluded and not self.ungraded

    @property
    def point(self) -> Point | None:
        """The point of the sweep's picture; None without a sweep or without grades."""
        return None if self.part.value is None else point(self.part.value, self.figures)


@dataclass(frozen=True)
class Evaluation:
    """The settings, model and rows that all parts share."""

    options: EvalOptions
    settings: Settings
    limits: TokenLimits
    model: ModelSpec  # with room for the images of any part: one engine plays them all
    rows: tuple[VideoQA, ...]
    shards: int
    excluded: tuple[ExcludedRow, ...] = ()
    root: str = ""  # checkpoint that the model's server reports; empty where it doesn't, or there is no server

    @property
    def judge(self) -> str | None:
        """Name of the judge's model; None without a judge."""
        judge = self.settings.judge
        return judge.model if judge.base_url and judge.model else None

    @property
    def retrieval(self) -> RetrievalConfig:
        """The search of frames by text; the baseline has none."""
        return RetrievalConfig() if self.options.variant.kind == "baseline" else self.settings.retrieval

    def plan(self, part: Part, revision: int = 0) -> EvalPlan:
        """The plan that each process gets to play a part."""
        return EvalPlan(
            folder=part.folder,
            settings=replace(self.settings, system=part.system, retrieval=self.retrieval),
            model=self.model,
            limits=part.limits,
            concurrency=self.options.concurrency,
            provenance={
                "model": self.model.chat.model or self.model.model,
                "engine": self.model.engine,
                "benchmark": self.options.benchmark_name,
                "evaluated": part.title,
                **({REVISION: revision} if revision else {}),
            },
        )

    def identity(self, part: Part) -> dict[str, Any]:
        """Everything that a part's results depend on, as plain data; unknown values are null.

        A judge is its model, wherever that runs.
        """
        model = self.model.model
        return {
            "data": [str(path.resolve()) for path in self.options.data],
            "benchmark": self.options.benchmark_name,
            "model": model,
            "model_name": self.model.chat.model or self.options.model_name or None,
            "model_root": self.root or None,
            "model_content": checkpoint_digest(model) or None,
            "engine": self.model.engine,
            "judge": self.judge,
            "retrieval": {"model": self.retrieval.model, "pretrained": self.retrieval.pretrained},
            "frame_store": {"backend": self.settings.frame_store.backend},
            "prompts": prompts_of(part.system),
            "system": {"class": type(part.system).__qualname__, **asdict(part.system)},  # type: ignore[call-overload]
            "limits": asdict(part.limits),
            "sampling": {
                "temperature": self.model.temperature,
                "top_p": self.model.top_p,
                "seed": self.model.seed,
            },
            **({"template_kwargs": dict(self.model.template_kwargs)} if self.model.template_kwargs else {}),
        }

    def identity_at(self, value: int) -> dict[str, Any] | None:
        """The identity of another value of the sweep; None for a value that the system can't have."""
        assert self.options.sweep is not None
        options = replace(self.options, sweep=(self.options.sweep[0], str(value)))
        try:
            (part,) = parts_of(options, self.settings.system, self.limits, tiny=_tiny(self.model))
        except SetupError:
            return None
        return self.identity(part)


def _tiny(model: ModelSpec) -> bool:
    return backend_class(model.engine).one_token_frames


def prompts_of(constants: Any) -> dict[str, str]:
    """Digests of the prompt templates that a system, or a part of it, names."""
    digests: dict[str, str] = {}
    for field in fields(constants):
        value = getattr(constants, field.name)
        if is_dataclass(value):
            digests |= prompts_of(value)
        elif isinstance(value, str) and ("prompt" in field.name or field.default in packaged_prompts()):
            try:
                text = load_prompt(value)
            except (OSError, ValueError):
                continue  # a user's system may hold the text itself
            digests[value] = sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:16]
    return digests


class LocalEngine:
    """The event loop of this process and its one backend, which plays all parts; the model loads when first needed."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._backend: Backend | None = None
        self.run = self._runner.run

    def load(self, plan: EvalPlan) -> Backend:
        """The backend, made at the first call: an engine belongs to the event loop in which it is made."""

        async def make() -> Backend:
            return make_backend(plan.model, plan.system.size_factor)

        self._backend = self._backend or self.run(make())
        return self._backend

    def close(self) -> None:
        """Release the model and the event loop."""
        with closing(self._runner):
            if self._backend is not None:
                self._backend.close()


def evaluate(options: EvalOptions) -> list[PartResult]:
    """Evaluate; the same options resume. Returns a result for each value of the sweep, or one.

    Progress and excluded rows go to standard error, reports to standard output.
    """
    evaluation, parts = prepare(options)
    needing_judge = judged_rows(evaluation.rows, parts[0].system)
    if not all(same_settings(read_settings(part.folder), evaluation.identity(part)) for part in parts):
        # before a folder is made; what is finished is reported without them
        require_model(options.spec, name_option="--model-name")
        require_encoder(evaluation.retrieval)
        if evaluation.judge is not None and needing_judge:
            require_judge(evaluation.settings)
    for kind, count in (needing_judge if evaluation.judge is None else {}).items():
        print(
            f"{count} of {len(evaluation.rows)} rows {kind}, and there is no judge: their episodes get no grade. The "
            "same command with agentic_video.judge.base_url and agentic_video.judge.model grades them, now or later",
            file=sys.stderr,
        )
    with closing(LocalEngine()) as engine:
        results = evaluate_parts(evaluation, parts, engine)
    if options.sweep and any(result.point for result in results):
        draw_sweep(evaluation, results)
    return results


def draw_sweep(evaluation: Evaluation, results: Sequence[PartResult]) -> None:
    """Draw a sweep's picture; a baseline's sweep of frames also reports how many frames the questions need."""
    options = evaluation.options
    assert options.sweep is not None
    kind, benchmark = options.sweep[0], options.benchmark_name
    picture = options.folder / f"sweep-{kind}.png"
    curves = read_curves(options.folder, kind, options.variant.curve, evaluation.identity_at)
    asked = results[0].figures["asked"]
    unplayed = asked - min(result.figures["episodes"] for result in results)
    note = f" (without {unplayed} of {asked} questions, which could not be played)" if unplayed > 0 else ""
    draw(kind, curves, benchmark, picture, benchmark + note)
    print(f"picture: {picture}")
    if kind == "frames" and options.variant.kind == "baseline":
        played = {
            result.part.value or 0: eval_progress(evaluation.rows, finished(result.part.folder)[0]).played
            for result in results
        }
        if (figures := measure(played)) is not None:
            write_whole(options.folder / "required-frames.json", [json.dumps(asdict(figures), indent=2)])
            print(figures)


def judged_rows(rows: Sequence[VideoQA], system: System) -> Counter[str]:
    """Number of questions that need a judge when a system plays them, by kind (``are open ended``)."""
    kinds = (
        OPEN_ENDED["judge"]
        if is_caption(qa) or (qa.answer_type == "open_ended" and qa.data_source in JUDGED)
        else judged(system, qa)
        for qa in rows
        if not qa.hidden
    )
    return Counter(filter(None, kinds))


def require_judge(settings: Settings) -> None:
    """Check that the judge's server answers; a SetupError names its key."""
    block, judge = "agentic_video.judge", settings.judge
    listed = list_models(
        judge.base_url, judge.api_key_env, option=f"{block}.base_url", key_option=f"{block}.api_key_env"
    )
    warn_of_name(listed, judge.base_url, f"{block}.model={judge.model}", judge.model)


def evaluate_parts(evaluation: Evaluation, parts: Sequence[Part], engine: LocalEngine) -> list[PartResult]:
    """Evaluate the parts in turn; values of a sweep whose first views don't fit are skipped, unless all are."""
    results: list[PartResult] = []
    for part in parts:
        try:
            results.append(evaluate_part(evaluation, part, engine))
        except NothingFits as error:
            if part is parts[-1] and not results:
                raise
            print(f"{part.title} is left out: {error}", file=sys.stderr)
    return results


def prepare(options: EvalOptions) -> tuple[Evaluation, list[Part]]:
    """Read the config and the rows; nothing is loaded yet."""
    if not options.model or not options.data:
        raise SetupError("name a model with --model and rows with --data")
    check_files(options.data, "--data")
    chosen = options.spec
    if chosen.engine not in SERVED and not _holds(options.folder, options.model):
        require_model(chosen)  # a model that isn't there is reported before other mistakes
    make_importable(options.recipe_folder())
    config = compose_recipe(options.recipe_folder(), options.profile_of(chosen.engine), options.overrides)
    settings, limits = settings_of(config), limits_of(config)
    if options.variant.kind != "baseline":
        check_taught(options.model, settings.system)
    rows, excluded = read_rows(options)
    model = model_spec(chosen, config)
    if rules := rules_of(model):
        settings = replace(settings, system=fitted_system(settings.system, rules, options.overrides))
    parts = parts_of(options, settings.system, limits, tiny=_tiny(model))
    clips = any(shows_clips(part.system) for part in parts)
    if clips and not backend_class(model.engine).takes_clips:
        raise SetupError(f"--engine {model.engine} takes no clips: agentic_video.system.frames_as=images")
    model = fit_images(model, max(part.system.max_images for part in parts), clips)
    if rules:
        check_pictures(model, settings.system, rules)
    root = ""
    if chosen.engine in SERVED:
        try:
            listed = list_models(options.model, options.api_key_env, timeout=10.0)
            root = listed.roots.get(model.chat.model, "")
        except SetupError:  # nothing may be left to play; else it is reported when the model is needed
            pass
    shards = count_shards(options.shards, model)
    return Evaluation(options, settings, limits, model, tuple(rows), shards, tuple(excluded), root), parts


def rules_of(model: ModelSpec) -> ProcessorRules | None:
    """Rules of the model's processor, as far as the model's files tell."""
    if problem := processor_problem(model.vllm.get("mm_processor_kwargs"), PROCESSOR_ARGUMENTS):
        raise SetupError(problem)
    named = _processor_named(model)
    return checkpoint_rules(named) if named else None


def check_pictures(model: ModelSpec, system: System, rules: ProcessorRules) -> None:
    """Check that a system's pictures suit the model's processor and vLLM."""
    views = opening_pictures(system, rules)
    for line in size_notes(views, rules, _processor_named(model)):
        print(line, file=sys.stderr)
    if model.engine == "vllm":
        check_engine_room(views, rules, model.vllm, "actor_rollout_ref.rollout.max_num_batched_tokens")


def _processor_named(model: ModelSpec) -> str:
    return {"vllm": model.model, "vllm-server": model.processor}.get(model.engine, "")


def read_rows(options: EvalOptions) -> tuple[list[VideoQA], list[ExcludedRow]]:
    """The questions, each once, and the excluded rows, which are reported.

    Under a limit that cuts something, excluded rows count nowhere: they might not have been among the first.
    """
    rows, problems = load_rows(options.data, hidden=True)
    places = {problem.where for problem in problems}
    raw = {where: row for path in (options.data if places else ()) for where, row in placed_rows(path)}
    rows, repeated = distinct(rows)
    excluded = [*(excluded_row(problem, raw.get(problem.where)) for problem in problems), *repeated]
    for line in reported(excluded, "row"):
        print(line, file=sys.stderr)
    if options.limit and options.limit < len(rows):
        rows, excluded = rows[: options.limit], [replace(row, asked=False) for row in excluded]
    return rows, excluded


def variant_of(system: System, variant: Variant, *, tiny: bool) -> tuple[System, str]:
    """The system that plays for a variant, and its name in the report; ``tiny`` as in :func:`baseline_of`."""
    if variant.kind == "baseline":
        title = f"{variant.curve} of {variant.frames} frames"
        return baseline_of(system, variant.frames, tiny=tiny, prompt=variant.prompt), title
    if variant.kind == "no-tools":
        return without_tools(system), f"{system.name} without tools"
    return system, system.name


def _holds(folder: Path, model: str) -> bool:
    """Return True if a folder holds an evaluation of a model, which is reported whatever has become of the model."""
    return any(read_settings(file.parent).get("model") == model for file in folder.glob(f"**/{SETTINGS_FILE}"))


def parts_of(options: EvalOptions, system: System, limits: TokenLimits, *, tiny: bool) -> list[Part]:
    """The evaluations that the options ask for, given the recipe's system and limits."""
    system, title = variant_of(system, options.variant, tiny=tiny)
    sweep = options.swept
    if sweep is None:
        return [Part(options.folder, title, system, fit_limits(system, limits))]
    kind = sweep.kind
    if kind == "frames" and sweep.values[0] < 1 and options.variant.kind != "baseline":
        raise SetupError("--sweep frames 0: only --baseline asks without frames", key="--sweep")
    if kind == "calls" and options.variant.kind == "no-tools":
        raise SetupError(
            "--sweep calls: --no-tools makes no calls; leave one of them out (calls 0 is --no-tools)", key="--sweep"
        )
    parts = []
    for value in sweep.values:
        changed = swept(system, kind, value)
        folder = options.folder / folder_name(kind, options.variant.curve, value)
        parts.append(Part(folder, f"{system.name}, {kind} {value}", changed, fit_limits(changed, limits), value))
    return parts


def evaluate_part(evaluation: Evaluation, part: Part, engine: LocalEngine) -> PartResult:
    """Play what a part's folder lacks, and write its report."""
    claim_folder(part.folder, evaluation.identity(part))
    records, torn = finished(part.folder)
    for problem in torn:
        print(f"no episode, its question is played again: {printable(problem)}", file=sys.stderr)
    state = eval_progress(evaluation.rows, records, judged=evaluation.judge is not None)
    revision = max(map(revision_of, records), default=0) + bool(state.to_grade or state.corrected)
    plan = evaluation.plan(part, revision)
    done = len(evaluation.rows) - len(state.missing)
    print(f"{part.title}: {len(evaluation.rows)} questions, {done} already played", file=sys.stderr)
    if state.corrected:
        print(f"{state.corrected} rows ask something else than they did: played again", file=sys.stderr)
    not_graded = []
    if state.to_grade:
        not_graded = regrade(plan, state, engine)
        state = eval_progress(evaluation.rows, finished(part.folder)[0])
    if state.missing:
        play_missing(evaluation, plan, state, engine)
    return report_part(evaluation, part, not_graded)


def regrade(plan: EvalPlan, state: EvalProgress, engine: LocalEngine) -> list[Failure]:
    """Grade stale episodes again, with a progress bar; returns those that couldn't be graded."""
    corrected = sum(not same_gold(record.qa, qa) for record, qa in state.to_grade)
    if corrected:
        print(f"{corrected} rows have another answer than they had: graded again", file=sys.stderr)
    if len(state.to_grade) > corrected:
        print(f"{len(state.to_grade) - corrected} episodes have no grade: the judge is asked again", file=sys.stderr)
    with progress(len(state.to_grade), ()) as update:
        return engine.run(grade_again(plan, state.to_grade, update))


def play_missing(evaluation: Evaluation, plan: EvalPlan, state: EvalProgress, engine: LocalEngine) -> None:
    """Play the missing questions, with a progress bar."""
    first = FirstViews(evaluation.rows, state.played)
    require_model(evaluation.options.spec)
    require_encoder(evaluation.retrieval)
    if evaluation.shards == 1:
        engine.load(plan)
    forget_failures(plan.folder)
    with progress(len(state.missing), state.played) as update:

        def done(result: Record | Failure) -> None:
            update(result)
            first.look(result)

        if evaluation.shards == 1:
            engine.run(play_rows(plan, state.missing, 0, done, engine.load(plan)))
        else:
            play_sharded(plan, state.missing, evaluation.shards, done)


def report_part(evaluation: Evaluation, part: Part, not_graded: Sequence[Failure] = ()) -> PartResult:
    """Write and print a part's report over the questions that were asked for."""
    benchmark, excluded = evaluation.options.benchmark_name, evaluation.excluded
    records = eval_progress(evaluation.rows, finished(part.folder)[0]).played
    unplayed = {key_of(qa) for qa in evaluation.rows} - {key_of(record.qa) for record in records}
    failed = [failure for failure in (*failures(part.folder), *not_graded) if failure.key in unplayed]
    figures, text = write_report(part.folder, f"{part.title} on {benchmark}", benchmark, records, failed, excluded)
    write_submissions(part.folder, records, failed, excluded)
    print(text)
    print(f"report: {part.folder / 'report.md'}")
    without = sum(map(ungraded, records)) if evaluation.judge is not None else 0
    if without:
        print(f"{without} episodes have no grade: the judge gave none; the same command asks it again")
    return PartResult(part, figures, len(evaluation.rows) - len(records), len(excluded), without)
