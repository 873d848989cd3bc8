"""Desirable and undesirable trajectories for KTO (EVA, sections 3.2 and 4.1).

Right answers that rest on what was seen are desirable; wrong ones, and guesses, are not. A judge reads each trajectory
and decides whether it is a guess.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import NonNegativeInt, PositiveInt
from tyro.conf import UseAppendAction

from agentic_video.evaluation.options import check_files
from agentic_video.evaluation.results import key_of
from agentic_video.graders.endpoint import Endpoint, UnreadableReply
from agentic_video.rollout.chat_policy import ChatConfig, Usage
from agentic_video.synthesis.asking import ask, chat_config, chat_messages, prompt
from agentic_video.synthesis.classes import imitable
from agentic_video.synthesis.inputs import (
    INFRASTRUCTURE_ENDS,
    content_of,
    digest,
    drawn,
    grade_of,
    read_episodes,
    read_questions,
)
from agentic_video.synthesis.jobs import JobReport, Key, Outcome, SynthesisJob, open_job
from agentic_video.synthesis.teachers import Teacher, TeacherOptions, play_samples, prepare
from agentic_video.systems.base import System
from agentic_video.systems.prompts import question_text
from agentic_video.systems.registry import METHODS
from agentic_video.types.record import Record
from agentic_video.types.trajectory import FrameRef, Trajectory, recorded_frames
from agentic_video.utils.errors import SetupError
from agentic_video.utils.option_types import Fraction, OpenFraction

DESIRABLE, UNDESIRABLE = "desirable", "undesirable"
MALFORMED = "right, but malformed"

Evidence = Literal["enough", "guess", "unclear"]
Rejected = Literal["wrong-or-guess", "wrong-and-guess"]
"""Rule for undesirable trajectories. ``wrong-or-guess``: every wrong one, and right ones without evidence.
``wrong-and-guess``: only wrong ones without evidence, the paper's (section 3.2); the others are left out."""

MAX_TURN_CHARS, MAX_TURNS, MAX_TIMES, MAX_ANSWER_CHARS = 4_000, 16, 64, 2_000
"""Bounds of the material that the judge is shown."""


def read_evidence(reply: str) -> Evidence:
    """The judge's word."""
    word = reply.strip().strip(".*`\"'").lower()
    if word not in get_args(Evidence):
        raise UnreadableReply(f"unreadable verdict {reply[:40]!r}")
    return cast(Evidence, word)


def question_for_judge(record: Record) -> list[dict[str, Any]]:
    """The messages that ask whether a trajectory is a guess; its texts are quoted as JSON, and cut."""
    trajectory = record.trajectory
    overview = [ref for message in trajectory.opening for ref in recorded_frames(message.parts)]
    turns: list[dict[str, Any]] = [{"said": "", "saw_frames_at": _times(overview)}] if overview else []
    for turn in trajectory.turns:
        frames = recorded_frames(turn.observation)
        turns.append({"said": turn.text[:MAX_TURN_CHARS], "saw_frames_at": _times(frames)})
    if len(turns) > MAX_TURNS:
        half = MAX_TURNS // 2
        turns = [*turns[:half], {"said": f"({len(turns) - MAX_TURNS} turns left out)"}, *turns[-half:]]
    material = {
        "question": question_text(record.qa, "{letter}. {text}"),
        "turns": turns,
        "answer": (trajectory.answer or "")[:MAX_ANSWER_CHARS],
    }
    return chat_messages(prompt("judge"), json.dumps(material))


def _times(frames: Sequence[FrameRef]) -> dict[str, Any] | list[Any]:
    if not frames:
        return []
    step = -(-len(frames) // MAX_TIMES)
    times = [round(frame.time, 2) for frame in frames[::step]]
    return {"number": len(frames), "seconds": times, "size": [frames[0].width, frames[0].height]}


def well_formed(record: Record, played: System | None = None) -> bool:
    """Return True for an episode in the system's grammar, without a refused call or another fault."""
    return record.rewards.get("format", 1.0) == 1.0 and imitable(record.trajectory, played)


def without_judge(trajectory: Trajectory, right: bool, rejected: Rejected, formed: bool = True) -> str | None:
    """The label of a trajectory, or why it is left out, where that needs no judge; ``formed``: :func:`well_formed`."""
    if trajectory.end in INFRASTRUCTURE_ENDS:
        return "ended by an error"
    if trajectory.answer is None:
        return UNDESIRABLE if rejected == "wrong-or-guess" else "no answer"
    if rejected == "wrong-or-guess" and not right:
        return UNDESIRABLE
    # Nothing was seen: there is nothing to ask.
    if not trajectory.frames:
        return with_evidence("guess", right, rejected, formed)
    # It is left out whatever the judge's verdict.
    return MALFORMED if right and not formed and rejected == "wrong-and-guess" else None


def with_evidence(evidence: Evidence, right: bool, rejected: Rejected, formed: bool = True) -> str:
    """The label of an answer, or why it is left out, given the judge's verdict."""
    if evidence == "unclear":
        return "judge: unclear"
    if right and evidence == "enough":
        return DESIRABLE if formed else MALFORMED
    if rejected == "wrong-or-guess" or (not right and evidence == "guess"):
        return UNDESIRABLE
    return "right, but a guess" if right else "wrong, but not a guess"


def mixture(desirable: int, undesirable: int, share: float, size: int | None = None) -> tuple[int, int]:
    """Numbers of each kind to take, so that the share of desirable ones holds and as few as possible are left out.

    ``size`` bounds their sum.
    """
    total = min(desirable / share, undesirable / (1 - share))
    total = min(total, size) if size else total
    # Where a kind is scarce all of it is taken, and the other is rounded.
    return min(desirable, round(total * share)), min(undesirable, round(total * (1 - share)))


@dataclass(frozen=True, kw_only=True)
class PreferenceOptions(TeacherOptions):
    """Trajectories, and their judge."""

    records: UseAppendAction[tuple[Path, ...]] = ()
    """file of records, or folder of a run or an evaluation; may be repeated"""
    data: UseAppendAction[tuple[Path, ...]] = ()
    """parquet or jsonl file of rows to play with --teacher, instead of records or in addition; may be repeated"""
    samples: PositiveInt = 1
    """episodes of each row"""
    judge: str
    """address of the judge's server: a model that reads text"""
    judge_name: str = ""
    """name of the judge on its server, where it has several"""
    judge_max_tokens: NonNegativeInt = 16
    """most tokens of the judge's reply; 0 leaves it to the server, as reasoning models want it"""
    rejected: Rejected = "wrong-or-guess"
    """undesirable trajectories: wrong answers and guesses, or wrong guesses only as in the paper"""
    right_from: Fraction = 0.5
    """accuracy from which an answer is right: 0 or 1 for choices, from 0 to 1 for open-ended questions"""
    share: OpenFraction = 0.63
    """share of desirable trajectories"""  # section 4.1
    size: PositiveInt | None = None
    """most trajectories; the paper has 11,000 (default: all)"""
    draw: NonNegativeInt = 0
    """seed of the choice of trajectories"""


def label(options: PreferenceOptions) -> JobReport:
    """Label episodes; complete when every episode was played and judged and there are both kinds."""
    if options.overrides and not options.data:
        # Where nothing is played there is no config: such a word is a file that doesn't exist, for example.
        raise SetupError(f"not an option: {options.overrides[0]}", key=options.overrides[0])
    if bool(options.data) != bool(options.teacher):
        raise SetupError("--data and --teacher belong together: the rows to play, and who plays them", key="--data")
    if not options.records and not options.data:
        raise SetupError("name --records, or rows with --data and who plays them with --teacher", key="--records")
    check_files(options.data, "--data")
    records = list(read_episodes(options.records)) if options.records else []
    judge = chat_config(
        options,
        options.judge,
        options.judge_name,
        "--judge",
        "--judge-name",
        max_tokens=options.judge_max_tokens,
    )
    lines, complete = [], True
    system: System | None = None
    if options.teacher:
        teacher = prepare(options, options.teacher, options.teacher_name, default_system=METHODS["preferences"])
        system = teacher.system
        played, report = play(options, teacher)
        records += played
        lines.append(report.text)
        complete = report.complete
    settings = {"judge": judge.model, "right_from": options.right_from, "rejected": options.rejected}
    with open_job(options, settings, "labelling") as job:
        asyncio.run(_judge(job, records, judge, options, system))
        more = write_labelled(job, options.share, options.size, options.draw)
        lines.append(job.write_report("Preferences", more))
    lines.append(f"{job.folder / 'kto.jsonl'}: records for run_kto.sh")
    missing = [kind for kind in (DESIRABLE, UNDESIRABLE) if not more[f"{kind} in the set"]]
    warning = f"no {' and no '.join(missing)} trajectory: KTO needs both kinds" if missing else ""
    return JobReport("\n".join(lines), complete and not missing and not job.failures, warning)


def play(options: PreferenceOptions, teacher: Teacher) -> tuple[list[Record], JobReport]:
    """Play the rows in a job below the folder; returns its episodes and report."""
    teacher.check_samples(options.samples)
    questions = read_questions(options.data).first(options.limit)
    with open_job(replace(options, out=options.folder / "played"), teacher.identity(), "playing") as job:
        played = asyncio.run(play_samples(job, {(): teacher}, questions.rows, options.samples, "preferences"))
        text = job.write_report(f"Episodes of {teacher.name}", questions.numbers)
        return [record for _, record in played], JobReport(text, not job.failures)


async def _judge(
    job: SynthesisJob, records: Sequence[Record], judge: ChatConfig, options: PreferenceOptions, played: System | None
) -> None:
    endpoint, rejected = Endpoint(judge, "judge"), options.rejected
    items: dict[Key, Record] = {}
    for record in records:
        # By content, so that a run which has continued, or a file that was moved, is no other job.
        content = digest(json.dumps(record.trajectory.to_dict()), grade_of(record))[:16]
        items.setdefault((*key_of(record.qa), content, content_of(record.qa)), record)

    async def work(record: Record) -> Outcome:
        grade, usage, judgement = grade_of(record), Usage(), dict[str, str]()
        if grade is None:
            return Outcome("no grade")
        right, formed = grade >= options.right_from, well_formed(record, played)
        verdict = without_judge(record.trajectory, right, rejected, formed)
        if verdict is None:
            evidence, usage = await ask(endpoint, question_for_judge(record), read_evidence)
            verdict = with_evidence(evidence, right, rejected, formed)
            judgement = {"evidence": evidence, "judge": judge.model}
        if verdict not in (DESIRABLE, UNDESIRABLE):
            return Outcome(verdict, usage=usage)
        labelled = replace(record, provenance={**record.provenance, "label": verdict, **judgement})
        return Outcome(result=labelled.to_dict(), usage=usage)

    await job.play(items, work)


def write_labelled(job: SynthesisJob, share: float, size: int | None, seed: int) -> dict[str, Any]:
    """Write ``kto.jsonl``, records with ``provenance.label``; returns numbers for the report (see :func:`mixture`)."""
    kinds: dict[str, list[Key]] = {DESIRABLE: [], UNDESIRABLE: []}
    asked: Counter[str] = Counter()
    for key, outcome in job.results(kept=True):
        provenance = outcome.result["provenance"]
        kinds[provenance["label"]].append(key)
        asked[provenance.get("evidence", "not asked")] += 1
    counts = mixture(len(kinds[DESIRABLE]), len(kinds[UNDESIRABLE]), share, size)
    chosen = set[Key]()
    for kind, count in zip(kinds, counts, strict=True):
        chosen |= drawn(kinds[kind], count, seed)
    job.write_rows("kto.jsonl", (job.outcome(key).result for key in job.finished() if key in chosen))
    more: dict[str, Any] = {f"{kind} found": len(keys) for kind, keys in kinds.items()}
    more |= {f"{kind} in the set": count for kind, count in zip(kinds, counts, strict=True)}
    more |= {f"labelled, judge: {word}": count for word, count in sorted(asked.items())}
    return more
