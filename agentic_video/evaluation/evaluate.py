"""An evaluation from its options to its report: play what is missing, grade, report, draw.

The path of a question: :func:`evaluate` here, :func:`~agentic_video.evaluation.runner.play_rows` in this process or, in
each shard, behind :func:`~agentic_video.evaluation.shards.play_sharded`.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any

from agentic_video.config.compose import compose_recipe
from agentic_video.config.features import PROCESSOR_ARGUMENTS, processor_problem
from agentic_video.config.settings import Settings, limits_of, settings_of
from agentic_video.datasets.rows import Problem, load_rows, placed_rows, reported
from agentic_video.evaluation.ablations import without_tools
from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.backends.make import backend_class, make_backend
from agentic_video.evaluation.baseline import baseline_of
from agentic_video.evaluation.context import require_encoder
from agentic_video.evaluation.fitting import FirstViews, NothingFits
from agentic_video.evaluation.model import (
    SERVED,
    ModelOptions,
    ModelSpec,
    check_taught,
    fit_images,
    list_models,
    model_spec,
    require_model,
    warn_of_name,
)
from agentic_video.evaluation.options import EvalOptions, Variant, check_files
from agentic_video.evaluation.plan import Plan, fit_limits
from agentic_video.evaluation.progress import progress
from agentic_video.evaluation.report import write_report
from agentic_video.evaluation.required_frames import measure
from agentic_video.evaluation.results import (
    REVISION,
    SETTINGS_FILE,
    Failure,
    Key,
    LeftOut,
    claim_folder,
    distinct,
    failures,
    finished,
    forget_failures,
    key_of,
    left_out,
    read_settings,
    repeated,
    revision_of,
    same_gold,
    same_question,
    same_settings,
)
from agentic_video.evaluation.runner import grade_again, play_rows
from agentic_video.evaluation.shards import count_shards, play_sharded
from agentic_video.evaluation.submission import write_submissions
from agentic_video.evaluation.suites import JUDGED
from agentic_video.evaluation.sweep import Point, draw, folder_name, point, read_curves, swept
from agentic_video.graders.captions import is_caption
from agentic_video.planning.pictures import check_engine_room, check_size_factor, opening_pictures, size_notes
from agentic_video.planning.published_checkpoints import checkpoint_rules
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import OPEN_ENDED, System
from agentic_video.systems.needs import judged
from agentic_video.systems.prompts import load_prompt, packaged_prompts
from agentic_video.systems.shown import shows_clips
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.text import printable
from agentic_video.utils.content import checkpoint_digest
from agentic_video.utils.errors import SetupError
from agentic_video.utils.imports import make_importable
from agentic_video.utils.journal import write_whole
from agentic_video.video.retrieval.config import RetrievalConfig


@dataclass(frozen=True)
class Part:
    """One evaluation: the whole of it, or one value of a sweep."""

    folder: Path  # where its journals and its report are
    title: str  # what was evaluated, as the report says it
    system: System  # what plays
    limits: TokenLimits  # token budgets of an episode
    value: int | None = None  # of the sweep; None without one


@dataclass(frozen=True)
class PartResult:
    """What a part came to."""

    part: Part  # the part
    figures: Mapping[str, Any]  # see figures
    missing: int  # questions that couldn't be played
    left_out: int = 0  # rows of the data files that are no questions
    ungraded: int = 0  # episodes to which the judge gave no grade; none where there is no judge

    @property
    def complete(self) -> bool:
        """Whether every row of the data files was played, and graded where it could be."""
        return not self.missing and not self.left_out and not self.ungraded

    @property
    def point(self) -> Point | None:
        """Where a sweep's picture has it; None without a sweep, and where nothing was graded."""
        return None if self.part.value is None else point(self.part.value, self.figures)


@dataclass(frozen=True)
class Questions:
    """What the data files hold."""

    rows: tuple[VideoQA, ...]  # the questions, each once
    left_out: tuple[LeftOut, ...] = ()  # the other rows


@dataclass(frozen=True)
class Job:
    """What all parts of an evaluation share."""

    options: EvalOptions  # what was asked for
    settings: Settings  # of the recipe's config
    limits: TokenLimits  # token budgets in the recipe's config
    model: ModelSpec  # with room for the images of any part: one engine plays them all
    rows: tuple[VideoQA, ...]  # the questions
    shards: int  # parallel processes
    left_out: tuple[LeftOut, ...] = ()  # rows of the data files that are no questions
    root: str = ""  # what the model's server says that it loaded; empty where it doesn't, or there is none

    @property
    def keys(self) -> set[Key]:
        """What names the questions."""
        return {key_of(qa) for qa in self.rows}

    @property
    def judge(self) -> str | None:
        """The model that judges; None where there is none."""
        judge = self.settings.judge
        return judge.model if judge.base_url and judge.model else None

    @property
    def retrieval(self) -> RetrievalConfig:
        """How frames are found by text; the baseline finds none."""
        return RetrievalConfig() if self.options.variant.kind == "baseline" else self.settings.retrieval

    def plan(self, part: Part, revision: int = 0) -> Plan:
        """What each process needs to play a part."""
        return Plan(
            folder=part.folder,
            system=part.system,
            model=self.model,
            limits=part.limits,
            frame_store=self.settings.frame_store,
            retrieval=self.retrieval,
            judge=self.settings.judge,
            score_timeout=self.settings.reward.timeout,
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
        """On what a part's results depend, as plain data: its folder belongs to it.

        A judge is its model, wherever that is. What isn't known is null
        (:data:`~agentic_video.evaluation.results.KNOWN_LATER`).
        """
        retrieval = self.retrieval
        return {
            "data": [str(path.resolve()) for path in self.options.data],
            "benchmark": self.options.benchmark_name,
            "model": self.options.model.model,
            "model_name": self.model.chat.model or self.options.model.model_name or None,
            "model_root": self.root or None,
            "model_content": _content_of(self.options.model.model),
            "engine": self.model.engine,
            "judge": self.judge,
            "retrieval": {"model": retrieval.model, "pretrained": retrieval.pretrained},
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
        """The same for another value of the sweep; None for one that it can't have."""
        assert self.options.sweep is not None
        options = replace(self.options, sweep=replace(self.options.sweep, values=(value,)))
        try:
            (part,) = parts_of(options, self.settings.system, self.limits, tiny=_tiny(self.model.engine))
        except SetupError:
            return None
        return self.identity(part)


def _tiny(engine: str) -> bool:
    return backend_class(engine).one_token_frames


def prompts_of(constants: Any) -> dict[str, str]:
    """The templates that a system, or a part of it, names: a digest of each one's text by its name."""
    found: dict[str, str] = {}
    for one in fields(constants):
        value = getattr(constants, one.name)
        if is_dataclass(value):
            found |= prompts_of(value)
        elif isinstance(value, str) and ("prompt" in one.name or one.default in packaged_prompts()):
            try:
                text = load_prompt(value)
            except (OSError, ValueError):
                continue  # somebody's own system may hold the text itself
            found[value] = sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:16]
    return found


class LocalEngine:
    """The event loop of this process, and the one backend that plays all parts in it: an engine belongs to the loop in
    which it was made. The model is loaded when the first part needs it."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._backend: Backend | None = None

    def __enter__(self) -> "LocalEngine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._backend is not None:
                self._backend.close()
        finally:
            self._runner.close()

    def load(self, plan: Plan) -> Backend:
        """The backend; made where there is none yet."""
        if self._backend is None:
            self._backend = self._runner.run(_make_backend(plan))
        return self._backend

    def play(self, plan: Plan, rows: Sequence[VideoQA], done: Callable[[Record | Failure], None]) -> None:
        """Play rows in this process; see :func:`~agentic_video.evaluation.runner.play_rows`."""
        self._runner.run(play_rows(plan, rows, 0, done, self.load(plan)))

    def grade(
        self, plan: Plan, episodes: Sequence[tuple[Record, VideoQA]], done: Callable[[Record | Failure], None]
    ) -> list[Failure]:
        """Grade recorded episodes again; see :func:`~agentic_video.evaluation.runner.grade_again`."""
        return self._runner.run(grade_again(plan, episodes, done))


async def _make_backend(plan: Plan) -> Backend:
    return make_backend(plan.model, plan.system.size_factor)


def evaluate(options: EvalOptions) -> list[PartResult]:
    """Evaluate: the same options again go on where it was stopped.

    Progress and what was left out go to standard error, reports to standard output."""
    job, parts = prepare(options)
    if not all(same_settings(read_settings(part.folder), job.identity(part)) for part in parts):
        require_model(options.model, name_option="--model-name")  # before a folder is made for it
        require_encoder(job.retrieval)
        require_judge(job, parts[0].system)
    warn_of_judge(job, parts[0].system)
    with LocalEngine() as engine:
        results = evaluate_parts(job, parts, engine)
    if options.sweep and any(result.point for result in results):
        kind, benchmark = options.sweep.kind, options.benchmark_name
        picture = options.folder / f"sweep-{kind}.png"
        curves = read_curves(options.folder, kind, options.variant.curve, job.identity_at)
        draw(kind, curves, benchmark, picture, benchmark + missing_note(results))
        print(f"picture: {picture}")
        if kind == "frames" and options.variant.kind == "baseline":
            write_required_frames(options.folder, job, results)
    return results


def judged_rows(job: Job, system: System) -> Counter[str]:
    """How many of the questions need a judge, by what they are (``are open ended``)."""
    always = OPEN_ENDED["judge"]
    kinds = (
        always
        if is_caption(qa) or (qa.answer_type == "open_ended" and qa.data_source in JUDGED)
        else judged(system, qa)
        for qa in job.rows
        if not qa.hidden
    )
    return Counter(filter(None, kinds))


def require_judge(job: Job, system: System) -> None:
    """Make sure that a judge who is named and needed answers."""
    block, judge = "agentic_video.judge", job.settings.judge
    if job.judge is None or not judged_rows(job, system):
        return
    found = list_models(
        judge.base_url, judge.api_key_env, option=f"{block}.base_url", key_option=f"{block}.api_key_env"
    )
    warn_of_name(found, judge.base_url, f"{block}.model={judge.model}", judge.model)


def warn_of_judge(job: Job, system: System) -> None:
    """Say on standard error that rows need a judge, where there is none. What is played waits for its grade."""
    if job.judge is None:
        for what, count in judged_rows(job, system).items():
            print(
                f"{count} of {len(job.rows)} rows {what}, and there is no judge: their episodes get no grade. The same "
                "command with agentic_video.judge.base_url and agentic_video.judge.model grades them, now or later",
                file=sys.stderr,
            )


def evaluate_parts(job: Job, parts: Sequence[Part], engine: LocalEngine) -> list[PartResult]:
    """Evaluate one part after the other; values of a sweep whose first views don't fit are left out."""
    results: list[PartResult] = []
    for part in parts:
        try:
            results.append(evaluate_part(job, part, engine))
        except NothingFits as error:
            if part is parts[-1] and not results:
                raise
            print(f"{part.title} is left out: {error}", file=sys.stderr)
    return results


def write_required_frames(folder: Path, job: Job, results: Sequence[PartResult]) -> None:
    """Print and write how many frames the model needs, where a sweep of the baseline tells."""
    played = {
        result.part.value: standing(job.rows, finished(result.part.folder)[0]).played
        for result in results
        if result.part.value is not None
    }
    figures = measure(played)
    if figures is not None:
        write_whole(folder / "required-frames.json", [json.dumps(asdict(figures), indent=2)])
        print(figures)


def prepare(options: EvalOptions) -> tuple[Job, list[Part]]:
    """Read the config and the rows; nothing is loaded yet."""
    if not options.model.model or not options.data:
        raise SetupError("name a model with --model and rows with --data")
    check_files(options.data, "--data")
    if options.model.engine not in SERVED and not _holds(options.folder, options.model.model):
        require_model(options.model)
    make_importable(options.recipe)
    config = compose_recipe(options.recipe, options.profile, options.overrides)
    settings = settings_of(config)
    if options.variant.kind != "baseline":
        check_taught(options.model.model, settings.system)
    questions = read_rows(options)
    model = model_spec(options.model, config)
    limits = limits_of(config)
    parts = parts_of(options, settings.system, limits, tiny=_tiny(model.engine))
    clips = any(shows_clips(part.system) for part in parts)
    if clips and not backend_class(model.engine).takes_clips:
        raise SetupError(f"--engine {model.engine} takes no clips: agentic_video.system.frames_as=images")
    model = fit_images(model, max(part.system.max_images for part in parts), clips)
    check_pictures(model, settings.system)
    shards = count_shards(options.shards, model)
    root = _root_of(options.model, model.chat.model)
    return Job(options, settings, limits, model, questions.rows, shards, questions.left_out, root), parts


def _content_of(model: str) -> str | None:
    """Digest of a checkpoint on this machine; null for another model."""
    return checkpoint_digest(model) or None if model else None


def _holds(folder: Path, model: str) -> bool:
    """Return True if a folder holds an evaluation of a model, which is reported whatever has become of the model."""
    return any(read_settings(file.parent).get("model") == model for file in folder.glob(f"**/{SETTINGS_FILE}"))


def check_pictures(model: ModelSpec, system: System) -> None:
    """Make sure that a system's pictures are ones for a model's processor and for vLLM, as far as its files tell."""
    if problem := processor_problem(model.vllm.get("mm_processor_kwargs"), PROCESSOR_ARGUMENTS):
        raise SetupError(problem)
    named = {"vllm": model.model, "vllm-server": model.processor}.get(model.engine, "")
    rules = checkpoint_rules(named) if named else None
    if rules is None:
        return
    check_size_factor(system, rules)
    views = opening_pictures(system, rules)
    for line in size_notes(views, rules, named):
        print(line, file=sys.stderr)
    if model.engine == "vllm":
        check_engine_room(views, rules, model.vllm, "actor_rollout_ref.rollout.max_num_batched_tokens")


def _root_of(options: ModelOptions, name: str) -> str:
    """What a model's server says that it loaded under a name; empty where nobody says."""
    if options.engine not in SERVED:
        return ""
    try:
        found = list_models(options.model, options.api_key_env, timeout=10.0)
    except SetupError:  # nothing may be left to play; else it is named when the model is needed
        return ""
    return (found.roots or {}).get(name, "")


def missing_note(results: Sequence[PartResult]) -> str:
    """What a picture says about questions that none of its points counts; empty where there are none."""
    most = max((result.figures["asked"] - result.figures["episodes"] for result in results), default=0)
    return f" (without {most} of {results[0].figures['asked']} questions, which could not be played)" if most else ""


def read_rows(options: EvalOptions) -> Questions:
    """The questions; rows that can't be read, or were there before, are named and left out.

    With a limit that cuts something, rows that are left out count nowhere: nobody knows whether they would have been
    among the first."""
    check_files(options.data, "--data")
    rows, unreadable = load_rows(options.data, hidden=True)
    problems = [*_left_out(options.data, unreadable), *repeated(rows)]
    rows, _ = distinct(rows)
    for line in reported([one.message for one in problems], "row"):
        print(line, file=sys.stderr)
    if 0 < options.limit < len(rows):
        rows, problems = rows[: options.limit], [replace(one, asked=False) for one in problems]
    return Questions(tuple(rows), tuple(problems))


def _left_out(paths: Sequence[Path], problems: Sequence[Problem]) -> list[LeftOut]:
    """The rows that couldn't be read, with what their files have in their places."""
    places = {problem.where for problem in problems}
    rows = {where: row for path in (paths if problems else ()) for where, row in placed_rows(path) if where in places}
    return [left_out(problem.message, rows.get(problem.where)) for problem in problems]


def variant_of(system: System, variant: Variant, *, tiny: bool) -> tuple[System, str]:
    """What plays in a system's place, and what the report calls it."""
    if variant.kind == "baseline":
        title = f"{variant.curve} of {variant.frames} frames"
        return baseline_of(system, variant.frames, tiny=tiny, prompt=variant.prompt), title
    if variant.kind == "no-tools":
        return without_tools(system), f"{system.name} without tools"
    return system, system.name


def parts_of(options: EvalOptions, system: System, limits: TokenLimits, *, tiny: bool) -> list[Part]:
    """The evaluations that the options ask for."""
    system, title = variant_of(system, options.variant, tiny=tiny)
    if options.sweep is None:
        return [Part(options.folder, title, system, fit_limits(system, limits))]
    kind = options.sweep.kind
    if kind == "frames" and options.sweep.values[0] < 1 and options.variant.kind != "baseline":
        raise SetupError("--sweep frames 0: only --baseline asks without frames")
    if kind == "calls" and options.variant.kind == "no-tools":
        raise SetupError("--sweep calls: --no-tools makes no calls; leave one of them out (calls 0 is --no-tools)")
    parts = []
    for value in options.sweep.values:
        changed = swept(system, kind, value)
        folder = options.folder / folder_name(kind, options.variant.curve, value)
        parts.append(Part(folder, f"{system.name}, {kind} {value}", changed, fit_limits(changed, limits), value))
    return parts


@dataclass(frozen=True)
class Standing:
    """How far an evaluation is."""

    played: tuple[Record, ...]  # the episodes that count, each with its row as it is now
    # episodes to be graded again, each with the row as it is now: its gold is another one, or it has no grade yet
    # (these count meanwhile)
    to_grade: tuple[tuple[Record, VideoQA], ...]
    missing: tuple[VideoQA, ...]  # questions that are to be played
    corrected: int  # how many of these were played, when their rows asked something else


def standing(rows: Sequence[VideoQA], records: Sequence[Record], *, judged: bool = False) -> Standing:
    """How far an evaluation is: an episode counts only for the row that it was played and graded by."""
    found = {key_of(record.qa): record for record in records}
    asked = [(found.get(key_of(qa)), qa) for qa in rows]
    good = [(record, qa) for record, qa in asked if record is not None and same_question(record.qa, qa)]
    kept = {key_of(qa) for _, qa in good}
    missing = tuple(qa for qa in rows if key_of(qa) not in kept)
    return Standing(
        played=tuple(replace(record, qa=qa) for record, qa in good if same_gold(record.qa, qa)),
        to_grade=tuple(
            (record, qa) for record, qa in good if (judged and ungraded(record)) or not same_gold(record.qa, qa)
        ),
        missing=missing,
        corrected=sum(key_of(qa) in found for qa in missing),
    )


def ungraded(record: Record) -> bool:
    """Whether an episode lacks a grade that it could have."""
    return not record.qa.hidden and "acc" not in record.rewards


def evaluate_part(job: Job, part: Part, engine: LocalEngine) -> PartResult:
    """Play what a part's folder lacks, and write its report."""
    claim_folder(part.folder, job.identity(part))
    records, torn = finished(part.folder)
    for problem in torn:
        print(f"no episode, its question is played again: {printable(problem)}", file=sys.stderr)
    now = standing(job.rows, records, judged=job.judge is not None)
    plan = job.plan(part, max(map(revision_of, records), default=0) + bool(now.to_grade or now.corrected))
    there = len(job.rows) - len(now.missing)
    print(f"{part.title}: {len(job.rows)} questions, {there} already played", file=sys.stderr)
    if now.corrected:
        print(f"{now.corrected} rows ask something else than they did: played again", file=sys.stderr)
    not_graded = []
    if now.to_grade:
        not_graded = grade_anew(plan, now, engine)
        now = standing(job.rows, finished(part.folder)[0])
    play_missing(job, plan, now, engine)
    return report_part(job, part, not_graded)


def grade_anew(plan: Plan, now: Standing, engine: LocalEngine) -> list[Failure]:
    """Grade recorded episodes again, with a progress bar."""
    corrected = sum(not same_gold(record.qa, qa) for record, qa in now.to_grade)
    if corrected:
        print(f"{corrected} rows have another answer than they had: graded again", file=sys.stderr)
    if len(now.to_grade) > corrected:
        print(f"{len(now.to_grade) - corrected} episodes have no grade: the judge is asked again", file=sys.stderr)
    with progress(len(now.to_grade), ()) as done:
        return engine.grade(plan, now.to_grade, done)


def play_missing(job: Job, plan: Plan, now: Standing, engine: LocalEngine) -> None:
    """Play questions, with a progress bar."""
    if now.missing:
        first = FirstViews(job.rows, now.played)
        require_model(job.options.model)
        require_encoder(job.retrieval)
    if now.missing and job.shards == 1:
        engine.load(plan)
    forget_failures(plan.folder)
    if not now.missing:
        return
    with progress(len(now.missing), now.played) as shown:
        done = first.watched(shown)
        if job.shards == 1:
            engine.play(plan, now.missing, done)
        else:
            play_sharded(plan, now.missing, job.shards, done)


def report_part(job: Job, part: Part, not_graded: Sequence[Failure] = ()) -> PartResult:
    """Write and print a part's report, over the questions that were asked for."""
    wanted, benchmark = job.keys, job.options.benchmark_name
    records = standing(job.rows, finished(part.folder)[0]).played
    played = {key_of(record.qa) for record in records}
    failed = [one for one in (*failures(part.folder), *not_graded) if one.key in wanted and one.key not in played]
    title = f"{part.title} on {benchmark}"
    figures, text = write_report(part.folder, title, benchmark, records, failed, job.left_out)
    write_submissions(part.folder, records, failed, job.left_out)
    print(text)
    print(f"report: {part.folder / 'report.md'}")
    without = sum(map(ungraded, records)) if job.judge is not None else 0
    if without:
        print(f"{without} episodes have no grade: the judge gave none; the same command asks it again")
    return PartResult(part, figures, len(job.rows) - len(records), len(job.left_out), without)
