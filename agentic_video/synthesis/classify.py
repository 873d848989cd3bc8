"""Questions sorted by what they need, and the SFT and RL sets that are drawn by it (VideoBrain, section 3.2).

The base model answers from the overview alone, the teacher may use the tools; a question's class follows from which of
them is right, and whether the teacher used tools (:mod:`agentic_video.synthesis.classes`).
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import PositiveInt
from tyro.conf import UseAppendAction

from agentic_video.evaluation.ablations import without_tools
from agentic_video.evaluation.backends.make import backend_class
from agentic_video.evaluation.baseline import baseline_of
from agentic_video.evaluation.plan import fit_limits
from agentic_video.evaluation.results import Key as QuestionKey
from agentic_video.evaluation.results import finished, key_of
from agentic_video.synthesis.classes import CLASSES, SetOptions, class_of, demonstration, set_sizes, side_of
from agentic_video.synthesis.inputs import QuestionSet, drawn, read_questions, report_problems
from agentic_video.synthesis.jobs import JobReport, SynthesisJob, open_job
from agentic_video.synthesis.teachers import Teacher, TeacherOptions, play_samples, prepare
from agentic_video.systems.base import System
from agentic_video.systems.registry import METHODS
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.utils.errors import SetupError
from agentic_video.utils.option_types import ModelName

SIDES = ("base", "teacher")
UNPLAYED = "not classified: an answer is missing or has no grade"

Results = Mapping[QuestionKey, Sequence[Record]]
"""Episodes by question."""


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions(TeacherOptions, SetOptions):
    """Rows, the answers of both models, and the sets."""

    data: UseAppendAction[tuple[Path, ...]] = ()
    """parquet or jsonl file of rows; may be repeated (default: the questions of --base-results)"""
    base: ModelName = ""
    """address of the base model's server, or folder of its checkpoint"""
    base_name: str = ""
    """name of the base model on its server, where it has several"""
    base_frames: PositiveInt | None = None
    """show the base model N uniform frames in the plain baseline's way (default: the system without its
    tools)"""
    base_results: tuple[Path, ...] = ()
    """evaluations of the base model, instead of --base; each is a sample"""
    teacher_results: tuple[Path, ...] = ()
    """evaluations of the teacher with tools, instead of --teacher; each is a sample"""
    samples: PositiveInt = 1
    """answers of each model that is played; the majority counts; several need a temperature above 0"""


def classify(options: ClassifyOptions) -> JobReport:
    """Classify rows and draw the sets; complete when every row is classified and no set is empty."""
    for side, model, folders in (
        ("base", options.base, options.base_results),
        ("teacher", options.teacher, options.teacher_results),
    ):
        if bool(model) == bool(folders):
            raise SetupError(f"name either --{side} or --{side}-results", key=f"--{side}")
    results = {"base": results_of(options.base_results), "teacher": results_of(options.teacher_results)}
    if options.data:
        questions = read_questions(options.data)
    elif options.base_results:
        # sorted: an evaluation's journal is in the order in which its episodes ended
        questions = QuestionSet([results["base"][key][0].qa for key in sorted(results["base"])])
    else:
        raise SetupError("name the rows with --data", key="--data")
    questions = questions.first(options.limit)
    players = _players(options)
    for player in players.values():
        player.check_samples(options.samples)
    settings = {side: players[side].identity() if side in players else None for side in SIDES}
    with open_job(options, settings, "classification") as job:
        if players:
            by_side: dict[tuple[str, ...], Teacher] = {(side,): player for side, player in players.items()}
            playing = play_samples(job, by_side, questions.rows, options.samples, "classify", need_grades=True)
            for (played_by, *_), record in asyncio.run(playing):
                results[str(played_by)][key_of(record.qa)].append(record)
        played = players["teacher"].system if "teacher" in players else None
        more = write_sets(job, questions.rows, results, options, played)
        text = job.write_report("Classification", {**more, **questions.numbers})
    text += f"\n{job.folder / 'sft.jsonl'}: records for run_sft.sh\n{job.folder / 'rl.jsonl'}: rows for run_grpo.sh"
    empty = not more["SFT set"] or not more["RL set"]
    if empty:
        text += "\na set is empty: a class has no row, or no right trajectory to learn from; --fill takes what there is"
    return JobReport(text, not empty and UNPLAYED not in more)


def results_of(folders: Sequence[Path]) -> dict[QuestionKey, list[Record]]:
    """The episodes of evaluations by question, one from each folder that has it."""
    results: dict[QuestionKey, list[Record]] = defaultdict(list)
    for folder in folders:
        records, problems = finished(folder)
        report_problems(problems, "record")
        if not records:
            raise SetupError(
                f"{folder}: no episodes there; expected the folder of an evaluation (agentic-video eval)",
                key=str(folder),
            )
        for record in records:
            results[key_of(record.qa)].append(record)
    return results


def write_sets(
    job: SynthesisJob,
    rows: Sequence[VideoQA],
    results: Mapping[str, Results],
    options: SetOptions,
    played: System | None = None,
) -> dict[str, Any]:
    """Classify rows and write ``classified.jsonl``, ``sft.jsonl`` (records) and ``rl.jsonl`` (rows).

    ``played`` is the system that the teacher played here, if it did. Returns numbers for the report.
    """
    verdicts: dict[QuestionKey, str] = {}
    demonstrations: dict[QuestionKey, Record] = {}
    lines = []
    for qa in rows:
        key = key_of(qa)
        sides = {side: side_of(results[side].get(key, ()), options.right_from) for side in SIDES}
        base, teacher = sides.values()
        verdicts[key] = UNPLAYED if base is None or teacher is None else class_of(base, teacher, options.slip)
        best = demonstration(results["teacher"].get(key, ()), options.right_from, options.sft_wrong, played)
        if best is not None:
            demonstrations[key] = best
        line: dict[str, Any] = {"data_source": qa.data_source, "id": qa.id, "verdict": verdicts[key]}
        lines.append({**line, **{name: asdict(side) if side else None for name, side in sides.items()}})
    sft, rl = _draw(verdicts, demonstrations, options)
    job.write_rows("classified.jsonl", lines)
    classed = [(key_of(qa), replace(qa, extra={**qa.extra, "class": verdicts[key_of(qa)]})) for qa in rows]
    job.write_rows("sft.jsonl", (_labelled(demonstrations[key], qa).to_dict() for key, qa in classed if key in sft))
    job.write_rows("rl.jsonl", (qa.to_row() for key, qa in classed if key in rl))
    more: dict[str, Any] = dict(sorted(Counter(verdicts.values()).items()))
    for name, chosen in (("SFT", sft), ("RL", rl)):
        more[f"{name} set"] = len(chosen)
        for kind in CLASSES:
            count = sum(verdicts[key] == kind for key in chosen)
            more[f"{name} set, {kind}"] = f"{count} ({100 * count / len(chosen):.1f} %)" if chosen else "0"
    return more


def _draw(
    verdicts: Mapping[QuestionKey, str], demonstrations: Mapping[QuestionKey, Record], options: SetOptions
) -> tuple[set[QuestionKey], set[QuestionKey]]:
    """The questions of the SFT set, which need a demonstration, and those of the RL set, without these."""
    members = {kind: [key for key, verdict in verdicts.items() if verdict == kind] for kind in CLASSES}
    usable = {kind: [key for key in members[kind] if key in demonstrations] for kind in CLASSES}
    have = {kind: len(members[kind]) for kind in CLASSES}
    can_teach = {kind: len(usable[kind]) for kind in CLASSES}
    sft_sizes, rl_sizes = set_sizes(have, can_teach, options.sft, options.rl, options.fill)
    sft, rl = set[QuestionKey](), set[QuestionKey]()
    for kind in CLASSES:
        sft |= drawn(usable[kind], sft_sizes[kind], options.draw)
        rl |= drawn([key for key in members[kind] if key not in sft], rl_sizes[kind], options.draw)
    return sft, rl


def _labelled(record: Record, qa: VideoQA) -> Record:
    return replace(record, qa=qa, provenance={**record.provenance, "class": qa.extra["class"]})


def _players(options: ClassifyOptions) -> dict[str, Teacher]:
    """The models that play here, with their systems."""
    players = {}
    if options.base:
        player = prepare(options, options.base, options.base_name, "--base", METHODS["classify"])
        if options.base_frames:
            tiny = backend_class(player.spec.engine).one_token_frames
            system = baseline_of(player.system, options.base_frames, tiny=tiny)
        else:
            system = without_tools(player.system)
        limits = player.limits if player.spec.engine == "chat" else fit_limits(system, player.limits)
        players["base"] = replace(player, settings=replace(player.settings, system=system), limits=limits)
    if options.teacher:
        players["teacher"] = prepare(options, options.teacher, options.teacher_name, default_system=METHODS["classify"])
    return players
