"""Questions sorted by what they need, and the SFT and RL sets that are drawn by it (VideoBrain, section 3.2).

The base model answers from the overview alone, the teacher may use the tools; who is right, and whether the teacher
used tools, says what a question needs (:mod:`agentic_video.synthesis.classes`).
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentic_video.evaluation.ablations import without_tools
from agentic_video.evaluation.backends.make import backend_class
from agentic_video.evaluation.baseline import baseline_of
from agentic_video.evaluation.plan import fit_limits
from agentic_video.evaluation.results import Key as QuestionKey
from agentic_video.evaluation.results import finished, key_of
from agentic_video.synthesis.classes import CLASSES, SetOptions, class_of, demonstration, set_sizes, side_of
from agentic_video.synthesis.inputs import QuestionSet, drawn, read_questions, report_problems
from agentic_video.synthesis.jobs import JobOptions, JobReport, Key, Outcome, SynthesisJob, open_job
from agentic_video.synthesis.teachers import Teacher, TeacherOptions, prepare, recorded_usage, sampler, samples_of
from agentic_video.systems.base import System
from agentic_video.types.record import Record
from agentic_video.types.row import QuestionClass, VideoQA
from agentic_video.utils.errors import SetupError

SIDES = ("base", "teacher")
UNPLAYED = "not classified: an answer is missing or has no grade"


@dataclass(frozen=True)
class ClassifyOptions:
    """Which rows are classified, and by whose answers. Each side either plays here or has results at hand."""

    job: JobOptions  # of the job; `limit` counts rows
    data: tuple[Path, ...] = ()  # parquet or jsonl files of rows; none takes the questions of `base_results`
    base: TeacherOptions | None = None  # the base model, which plays without tools
    base_results: tuple[Path, ...] = ()  # folders of evaluations of the base model; each is a sample
    # show the base model so many uniform frames in the plain baseline's way; None plays the system itself without its
    # tools
    base_frames: int | None = None
    teacher: TeacherOptions | None = None  # the teacher, which plays with tools
    teacher_results: tuple[Path, ...] = ()  # folders of evaluations of the teacher; each is a sample
    samples: int = 1  # answers of each model that is played; the majority counts
    sets: SetOptions = field(default_factory=SetOptions)  # how rows are classified, and the sets drawn


def classify(options: ClassifyOptions) -> JobReport:
    """Classify rows and draw the sets; the same options go on where a job was killed."""
    for side, model, folders in (
        ("base", options.base, options.base_results),
        ("teacher", options.teacher, options.teacher_results),
    ):
        if bool(model) == bool(folders):
            raise SetupError(f"name either --{side} or --{side}-results")
    results = {"base": results_of(options.base_results), "teacher": results_of(options.teacher_results)}
    questions = _questions(options, results["base"])
    rows = questions.rows
    players = _players(options)
    for player in players.values():
        player.check_samples(options.samples)
    settings = {side: players[side].identity() if side in players else None for side in SIDES}
    with open_job(options.job.out.resolve(), settings, "classification") as job:
        if players:
            played = asyncio.run(_play(job, players, rows, options))
            for (played_side, data_source, name, *_), record in played.items():
                results[str(played_side)].setdefault((str(data_source), str(name)), []).append(record)
        more = write_sets(job, rows, results, options.sets, players["teacher"].system if "teacher" in players else None)
        text = job.write_report("Classification", options.job.prices, {**more, **questions.numbers})
    text += f"\n{job.folder / 'sft.jsonl'}: records for run_sft.sh\n{job.folder / 'rl.jsonl'}: rows for run_grpo.sh"
    empty = not more["SFT set"] or not more["RL set"]
    if empty:
        text += "\na set is empty: a class has no row, or no right trajectory to learn from; --fill takes what there is"
    return JobReport(text, not empty and UNPLAYED not in more)


def results_of(folders: Sequence[Path]) -> dict[QuestionKey, list[Record]]:
    """The episodes of evaluations by question, one from each folder that has it."""
    found: dict[QuestionKey, list[Record]] = defaultdict(list)
    for folder in folders:
        records, problems = finished(folder)
        report_problems(problems, "record")
        if not records:
            raise SetupError(f"{folder}: no episodes there; expected the folder of an evaluation (agentic-video eval)")
        for record in records:
            found[key_of(record.qa)].append(record)
    return found


def write_sets(
    job: SynthesisJob,
    rows: Sequence[VideoQA],
    results: Mapping[str, Mapping[QuestionKey, Sequence[Record]]],
    options: SetOptions,
    played: System | None = None,
) -> dict[str, Any]:
    """Classify rows and write ``classified.jsonl``, ``sft.jsonl`` (records) and ``rl.jsonl`` (rows)."""
    verdicts: dict[QuestionKey, str] = {}
    demonstrations: dict[QuestionKey, Record] = {}
    lines = []
    for qa in rows:
        key = key_of(qa)
        sides = [side_of(results[side].get(key, ()), options.right_from) for side in SIDES]
        base, teacher = sides
        verdicts[key] = UNPLAYED if base is None or teacher is None else class_of(base, teacher, options.slip)
        best = demonstration(results["teacher"].get(key, ()), options.right_from, options.wrong_too, played)
        if best is not None:
            demonstrations[key] = best
        line: dict[str, Any] = {"data_source": qa.data_source, "id": qa.id, "verdict": verdicts[key]}
        for name, side in zip(SIDES, sides, strict=True):
            line[name] = None if side is None else {**vars(side)}
        lines.append(line)
    sft, rl = _draw(verdicts, demonstrations, options)
    job.write_rows("classified.jsonl", lines)
    classed = [(key_of(qa), replace(qa, extra={**qa.extra, "class": verdicts[key_of(qa)]})) for qa in rows]
    job.write_rows("sft.jsonl", (_labelled(demonstrations[key], qa).to_dict() for key, qa in classed if key in sft))
    job.write_rows("rl.jsonl", (qa.to_row() for key, qa in classed if key in rl))
    return _numbers(verdicts, {"SFT": sft, "RL": rl})


def _draw(
    verdicts: Mapping[QuestionKey, str], demonstrations: Mapping[QuestionKey, Record], options: SetOptions
) -> tuple[set[QuestionKey], set[QuestionKey]]:
    """The questions of the SFT set, which need a demonstration, and those of the RL set; none is in both."""
    members = {kind: [key for key, verdict in verdicts.items() if verdict == kind] for kind in CLASSES}
    usable = {kind: [key for key in members[kind] if key in demonstrations] for kind in CLASSES}
    learnt, trained = set_sizes(_count(members), _count(usable), options.sft, options.rl, options.fill)
    sft, rl = set[QuestionKey](), set[QuestionKey]()
    for kind in CLASSES:
        sft |= drawn(usable[kind], learnt[kind], options.seed)
        rl |= drawn([key for key in members[kind] if key not in sft], trained[kind], options.seed)
    return sft, rl


def _numbers(verdicts: Mapping[QuestionKey, str], sets: Mapping[str, set[QuestionKey]]) -> dict[str, Any]:
    more: dict[str, Any] = dict(sorted(Counter(verdicts.values()).items()))
    for name, chosen in sets.items():
        more[f"{name} set"] = len(chosen)
        for kind in CLASSES:
            count = sum(verdicts[key] == kind for key in chosen)
            more[f"{name} set, {kind}"] = f"{count} ({100 * count / len(chosen):.1f} %)" if chosen else "0"
    return more


def _count(groups: Mapping[QuestionClass, Sequence[object]]) -> dict[QuestionClass, int]:
    return {kind: len(group) for kind, group in groups.items()}


def _labelled(record: Record, qa: VideoQA) -> Record:
    return replace(record, qa=qa, provenance={**record.provenance, "class": qa.extra["class"]})


def _questions(options: ClassifyOptions, base: Mapping[QuestionKey, Sequence[Record]]) -> QuestionSet:
    """The rows to classify, each once."""
    if options.data:
        questions = read_questions(options.data)
    elif options.base_results:
        # An evaluation's journal is in the order in which its episodes ended.
        questions = QuestionSet([base[key][0].qa for key in sorted(base)])
    else:
        raise SetupError("name the rows with --data")
    return questions.first(options.job.limit)


def _players(options: ClassifyOptions) -> dict[str, Teacher]:
    """The models that play, with the systems that they play; those whose results are at hand don't."""
    players = {}
    if options.base:
        player = prepare(options.base)
        if options.base_frames:
            tiny = backend_class(player.spec.engine).one_token_frames
            alone = baseline_of(player.system, options.base_frames, tiny=tiny)
        else:
            alone = without_tools(player.system)
        settings = replace(player.settings, system=alone)
        limits = player.limits if player.spec.engine == "chat" else fit_limits(alone, player.limits)
        players["base"] = replace(player, settings=settings, limits=limits)
    if options.teacher:
        players["teacher"] = prepare(options.teacher)
    return players


async def _play(
    job: SynthesisJob, players: Mapping[str, Teacher], rows: Sequence[VideoQA], options: ClassifyOptions
) -> dict[Key, Record]:
    """The episodes that are played here, by side, question and number of the sample."""
    contexts = {side: player.context(job.folder, options.job.concurrency) for side, player in players.items()}
    try:
        # One for both sides: a base model's overview may need it too.
        retriever = next(iter(contexts.values())).retriever()
        works = {
            side: sampler(player, contexts[side], retriever, options.samples, "classify")
            for side, player in players.items()
        }
        samples = samples_of(rows, options.samples)
        items: dict[Key, tuple[str, VideoQA, int]] = {
            (side, *key): (side, *sample) for side in players for key, sample in samples.items()
        }

        async def play(item: tuple[str, VideoQA, int]) -> Outcome:
            side, qa, number = item
            record = await works[side](qa, number)
            if "acc" not in record.rewards:
                raise SetupError(f"row {qa.id} couldn't be graded: is agentic_video.judge set, and does it reply?")
            return Outcome(result=record.to_dict(), usage=recorded_usage(record))

        outcomes = await job.play(items, play, options.job.concurrency)
        return {key: Record.from_dict(outcome.result) for key, outcome in outcomes.items()}
    finally:
        for one in contexts.values():
            one.close()
