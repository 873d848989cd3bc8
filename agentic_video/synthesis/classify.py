"""``agentic-video classify``: VideoBrain's classes, and the SFT and RL sets that are drawn by them.

    agentic-video classify --data rows.parquet --base http://base:8000/v1 --teacher http://teacher:8000/v1 --out DIR
    agentic-video classify --base-results eval/base --teacher-results eval/teacher --out DIR

The base model answers from the overview alone, the teacher may use the tools; who is right, and whether the teacher
used tools, says what a question needs (VideoBrain, section 3.2). The same command goes on where it was killed.
"""

import argparse
import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from agentic_video.evaluation.context import EvalContext
from agentic_video.evaluation.results import Key as QuestionKey
from agentic_video.evaluation.results import distinct, finished, key_of
from agentic_video.evaluation.runner import play_one
from agentic_video.rollout.chat_policy import Usage
from agentic_video.synthesis import teachers
from agentic_video.synthesis.asking import with_backend
from agentic_video.synthesis.inputs import drawn, fraction, positive, report_problems
from agentic_video.synthesis.jobs import Job, Key, Outcome, Prices, open_job
from agentic_video.systems.videobrain.reward import QuestionClass, gate_fault
from agentic_video.tools.base import Retriever
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.utils.errors import SetupError

SYSTEM = "videobrain"
CLASSES: tuple[QuestionClass, ...] = get_args(QuestionClass)

SFT_SIZE, RL_SIZE = 1_600, 6_400
SFT_SHARES: dict[QuestionClass, float] = {"adaptive": 0.423, "active": 0.577}
RL_SHARES: dict[QuestionClass, float] = {"direct": 0.449, "adaptive": 0.081, "active": 0.470}
"""Sizes and shares of the paper's sets (section 4.1)."""

SIDES = ("base", "teacher")
Slip = Literal["drop", "direct"]
"""A question that the base model gets right and the teacher, without tools, wrong; the paper doesn't say."""

DROPPED_WITH = "dropped: base right, teacher wrong with tools"
DROPPED_WITHOUT = "dropped: base right, teacher wrong without tools"
UNPLAYED = "not classified: an answer is missing or has no grade"


@dataclass(frozen=True)
class Side:
    """What one model did with a question, over all its samples.

    Attributes:
        right: Whether more than half of its answers are right.
        used_tools: Whether at least half of those episodes that agree with ``right`` called a tool.
        samples: How many there are.
        right_samples: How many of them are right.
    """

    right: bool
    used_tools: bool
    samples: int
    right_samples: int


def side_of(records: Sequence[Record], right_from: float) -> Side | None:
    """Sum a model's samples up; None where there are none, or one has no grade.

    Args:
        right_from: Grade from which an answer is right.
    """
    if not records or any("acc" not in record.rewards for record in records):
        return None
    good = [record for record in records if record.rewards["acc"] >= right_from]
    right = 2 * len(good) > len(records)
    agreeing = [record for record in records if (record.rewards["acc"] >= right_from) == right]
    users = sum(record.trajectory.tool_calls > 0 for record in agreeing)
    return Side(right, 2 * users >= len(agreeing), len(records), len(good))


def class_of(base: Side, teacher: Side, slip: Slip = "drop") -> str:
    """The class of a question, or why it has none (section 3.2)."""
    if base.right and teacher.right:
        return "direct"
    if base.right:
        if teacher.used_tools:
            return DROPPED_WITH
        return "direct" if slip == "direct" else DROPPED_WITHOUT
    if teacher.right and not teacher.used_tools:
        return "adaptive"
    return "active"


@dataclass(frozen=True)
class Quota:
    """A set that is wanted: its size in rows, and the share of each class."""

    size: int
    shares: Mapping[QuestionClass, float]

    def wanted(self, kind: QuestionClass, factor: float = 1.0) -> int:
        """Rows of a class, in a set that is smaller by a factor."""
        exact = self.size * self.shares.get(kind, 0.0)
        # Rounded down only where rows are scarce: 1 600 of 42.3 % are 677.
        return round(exact) if factor >= 1 else int(factor * exact + 1e-9)


def set_sizes(
    rows: Mapping[QuestionClass, int], usable: Mapping[QuestionClass, int], sft: Quota, rl: Quota, fill: bool = False
) -> tuple[dict[QuestionClass, int], dict[QuestionClass, int]]:
    """How many rows of each class go into the SFT set and into the RL set, none into both.

    Where rows are scarce both sets shrink by one factor, so that all shares hold.

    Args:
        rows: Rows of each class.
        usable: Those among them that have a trajectory to learn from.
        sft: The SFT set.
        rl: The RL set.
        fill: Rather break the shares: take of each class what there is, up to what is wanted, SFT first.
    """
    if fill:
        learnt = {kind: min(sft.wanted(kind), usable.get(kind, 0)) for kind in CLASSES}
        return learnt, {kind: min(rl.wanted(kind), rows.get(kind, 0) - learnt[kind]) for kind in CLASSES}
    factor = 1.0
    for kind in CLASSES:
        for have, want in (
            (usable.get(kind, 0), sft.wanted(kind)), (rows.get(kind, 0), sft.wanted(kind) + rl.wanted(kind))
        ):  # fmt: skip
            factor = min(factor, have / want) if want else factor
    return (
        {kind: sft.wanted(kind, factor) for kind in CLASSES},
        {kind: rl.wanted(kind, factor) for kind in CLASSES},
    )


def demonstration(records: Sequence[Record], right_from: float, wrong_too: bool, margin: int) -> Record | None:
    """The teacher's trajectory to learn from: the first right one that passes the format gate.

    Args:
        wrong_too: Take a wrong one where none is right.
        margin: VideoBrain's ``duplicate_margin``.
    """
    legal = [record for record in records if _well_formed(record, margin)]
    right = [record for record in legal if record.rewards.get("acc", 0.0) >= right_from]
    return next(iter(right or (legal if wrong_too else [])), None)


def _well_formed(record: Record, margin: int) -> bool:
    trajectory = record.trajectory
    if trajectory.system == SYSTEM:
        return gate_fault(trajectory, margin) is None
    return trajectory.answer is not None and not trajectory.illegal_calls


def results_of(folders: Sequence[Path]) -> dict[QuestionKey, list[Record]]:
    """The episodes of evaluations by question, one from each folder that has it.

    Raises:
        SetupError: A folder holds none.
    """
    found: dict[QuestionKey, list[Record]] = defaultdict(list)
    for folder in folders:
        records, problems = finished(folder)
        report_problems(problems, "record")
        if not records:
            raise SetupError(f"{folder}: no episodes there; expected the folder of an evaluation (agentic-video eval)")
        for record in records:
            found[key_of(record.qa)].append(record)
    return found


@dataclass(frozen=True)
class Options:
    """How rows are classified and drawn.

    Attributes:
        right_from: Grade from which an answer is right.
        slip: See :data:`Slip`.
        sft: The SFT set.
        rl: The RL set.
        fill: See :func:`set_sizes`.
        wrong_too: See :func:`demonstration`.
        seed: Of the draw.
        margin: VideoBrain's ``duplicate_margin``.
    """

    right_from: float = 1.0
    slip: Slip = "drop"
    sft: Quota = Quota(SFT_SIZE, SFT_SHARES)
    rl: Quota = Quota(RL_SIZE, RL_SHARES)
    fill: bool = False
    wrong_too: bool = False
    seed: int = 0
    margin: int = 1


def write_sets(
    job: Job, rows: Sequence[VideoQA], results: Mapping[str, Mapping[QuestionKey, Sequence[Record]]], options: Options
) -> dict[str, Any]:
    """Classify rows and write ``classified.jsonl``, ``sft.jsonl`` (records) and ``rl.jsonl`` (rows).

    Args:
        results: For ``base`` and ``teacher``, the episodes by question.

    Returns:
        Numbers for the report.
    """
    verdicts: dict[QuestionKey, str] = {}
    demonstrations: dict[QuestionKey, Record] = {}
    lines = []
    for qa in rows:
        key = key_of(qa)
        sides = [side_of(results[side].get(key, ()), options.right_from) for side in SIDES]
        base, teacher = sides
        verdicts[key] = UNPLAYED if base is None or teacher is None else class_of(base, teacher, options.slip)
        best = demonstration(results["teacher"].get(key, ()), options.right_from, options.wrong_too, options.margin)
        if best is not None:
            demonstrations[key] = best
        line: dict[str, Any] = {"data_source": qa.data_source, "id": qa.id, "verdict": verdicts[key]}
        for name, side in zip(SIDES, sides, strict=True):
            line[name] = None if side is None else {**vars(side)}
        lines.append(line)
    members = {kind: [key for key, verdict in verdicts.items() if verdict == kind] for kind in CLASSES}
    usable = {kind: [key for key in members[kind] if key in demonstrations] for kind in CLASSES}
    learnt, trained = set_sizes(_count(members), _count(usable), options.sft, options.rl, options.fill)
    sft, rl = set[QuestionKey](), set[QuestionKey]()
    for kind in CLASSES:
        sft |= drawn(usable[kind], learnt[kind], options.seed)
        rl |= drawn([key for key in members[kind] if key not in sft], trained[kind], options.seed)

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


def _count(groups: Mapping[QuestionClass, Sequence[object]]) -> dict[QuestionClass, int]:
    return {kind: len(group) for kind, group in groups.items()}


def _labelled(record: Record, qa: VideoQA) -> Record:
    return replace(record, qa=qa, provenance={**record.provenance, "class": qa.extra["class"]})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``agentic-video classify``."""
    teachers.add_arguments(parser, required=False)
    parser.add_argument("--data", type=Path, action="append", default=[], help="parquet or jsonl file of rows; may be "
                        "repeated; default: the questions of --base-results")  # fmt: skip
    parser.add_argument("--base", help="address of the base model's server, or folder of its checkpoint")
    parser.add_argument("--base-name", default="", help="its name on the server, where that has several")
    parser.add_argument("--base-frames", type=positive, metavar="N", help="show the base model N uniform frames "
                        "in the plain baseline's way; default: the system itself without its tools")  # fmt: skip
    parser.add_argument("--base-results", type=Path, nargs="+", default=[], metavar="DIR", help="folders of "
                        "evaluations of the base model, in place of --base; each is a sample")  # fmt: skip
    parser.add_argument("--teacher-results", type=Path, nargs="+", default=[], metavar="DIR", help="the same for the "
                        "teacher, with tools")  # fmt: skip
    parser.add_argument("--samples", type=positive, default=1, metavar="K", help="answers of each model that is "
                        "played; the majority counts (%(default)s); several need a temperature above 0")  # fmt: skip
    parser.add_argument("--right-from", type=fraction, default=1.0, help="grade from which an answer is right "
                        "(%(default)s)")  # fmt: skip
    parser.add_argument("--slip", choices=get_args(Slip), default="drop", help="a question that the base model gets "
                        "right and the teacher, without tools, wrong (%(default)s)")  # fmt: skip
    parser.add_argument("--sft-size", type=int, default=SFT_SIZE, metavar="N", help="rows of the SFT set (%(default)s)")
    parser.add_argument("--sft-shares", type=shares, default=SFT_SHARES, metavar="CLASS=SHARE,...",
                        help=f"default: {_shares_text(SFT_SHARES)}")  # fmt: skip
    parser.add_argument("--sft-wrong", action="store_true", help="where the teacher was never right, learn from a "
                        "wrong trajectory")  # fmt: skip
    parser.add_argument("--rl-size", type=int, default=RL_SIZE, metavar="N", help="rows of the RL set (%(default)s)")
    parser.add_argument("--rl-shares", type=shares, default=RL_SHARES, metavar="CLASS=SHARE,...",
                        help=f"default: {_shares_text(RL_SHARES)}")  # fmt: skip
    parser.add_argument("--fill", action="store_true", help="where a class is scarce, break the shares rather "
                        "than make both sets smaller")  # fmt: skip
    parser.add_argument("--draw", type=int, default=0, metavar="SEED", help="of the choice of rows (%(default)s)")


def shares(text: str) -> dict[QuestionClass, float]:
    """Shares that add up to 1, for :mod:`argparse`."""
    found: dict[QuestionClass, float] = {}
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        if name.strip() not in CLASSES or name.strip() in found:
            raise argparse.ArgumentTypeError(
                f"{pair!r}: expected each of {', '.join(CLASSES)} at most once, as NAME=SHARE"
            )
        found[cast(QuestionClass, name.strip())] = fraction(value)
    if abs(sum(found.values()) - 1) > 1e-6:
        raise argparse.ArgumentTypeError(f"{text}: the shares add up to {sum(found.values()):g}, not to 1")
    return found


def _shares_text(shares: Mapping[QuestionClass, float]) -> str:
    return ",".join(f"{kind}={share:g}" for kind, share in shares.items())


def run(arguments: argparse.Namespace) -> int:
    """Classify; 0, 1 when a row isn't classified or a set is empty, 2 when nothing could start."""
    return teachers.guarded(_classify, arguments)


def _classify(arguments: argparse.Namespace) -> int:
    for side, model, folders in (
        ("base", arguments.base, arguments.base_results), ("teacher", arguments.model, arguments.teacher_results)
    ):  # fmt: skip
        if bool(model) == bool(folders):
            raise SetupError(f"name either --{side} or --{side}-results")
    if not arguments.recipe and not arguments.system:
        arguments.system = SYSTEM
    results = {"base": results_of(arguments.base_results), "teacher": results_of(arguments.teacher_results)}
    rows = _rows(arguments, results["base"])
    players = {side: player for side in SIDES if (player := _player(arguments, side)) is not None}
    if arguments.samples > 1 and any(player.spec.temperature == 0 for player in players.values()):
        raise SetupError("--samples says the same each time at temperature 0: set --temperature")
    options = Options(
        right_from=arguments.right_from, slip=arguments.slip, fill=arguments.fill, wrong_too=arguments.sft_wrong,
        sft=Quota(arguments.sft_size, arguments.sft_shares), rl=Quota(arguments.rl_size, arguments.rl_shares),
        seed=arguments.draw,
        margin=int(getattr(players["teacher"].system, "duplicate_margin", 1)) if "teacher" in players else 1,
    )  # fmt: skip
    settings = {side: players[side].identity() if side in players else None for side in SIDES}
    with open_job(arguments.out.resolve(), settings, "classification") as job:
        if players:
            played = asyncio.run(_play(job, players, rows, arguments))
            for (played_side, data_source, name, _), record in played.items():
                results[str(played_side)].setdefault((str(data_source), str(name)), []).append(record)
        more = write_sets(job, rows, results, options)
        print(job.write_report("Classification", Prices(arguments.price_in, arguments.price_out), more))
    print(f"{job.folder / 'sft.jsonl'}: records for run_sft.sh\n{job.folder / 'rl.jsonl'}: rows for run_grpo.sh")
    if not more["SFT set"] or not more["RL set"]:
        print("a set is empty: a class has no row, or no right trajectory to learn from; --fill takes what there is")
        return 1
    return int(UNPLAYED in more)


def _rows(arguments: argparse.Namespace, base: Mapping[QuestionKey, Sequence[Record]]) -> list[VideoQA]:
    """The rows to classify, each once.

    Raises:
        SetupError: None are named.
    """
    from agentic_video.datasets.rows import load_rows

    if arguments.data:
        rows, problems = load_rows(arguments.data)
        rows, repeated = distinct(rows)
        report_problems([*problems, *repeated], "row")
    elif arguments.base_results:
        # An evaluation's journal is in the order in which its episodes ended.
        rows = [base[key][0].qa for key in sorted(base)]
    else:
        raise SetupError("name the rows with --data")
    return rows[: arguments.limit] if arguments.limit > 0 else rows


def _player(arguments: argparse.Namespace, side: str) -> teachers.Teacher | None:
    """The model of a side, with the system that it plays; None where its results are at hand."""
    from agentic_video.commands.eval import baseline_of, fit_limits

    if side == "teacher":
        return teachers.prepare(arguments) if arguments.model else None
    if not arguments.base:
        return None
    named = {"model": arguments.base, "model_name": arguments.base_name}
    player = teachers.prepare(argparse.Namespace(**{**vars(arguments), **named}))
    if arguments.base_frames:
        alone = baseline_of(player.system, arguments.base_frames, tiny=player.spec.engine == "toy")
    else:
        alone = player.system.direct()
    settings = replace(player.settings, system=alone)
    limits = player.limits if player.spec.engine == "chat" else fit_limits(alone, player.limits)
    return replace(player, settings=settings, limits=limits)


async def _play(
    job: Job, players: Mapping[str, teachers.Teacher], rows: Sequence[VideoQA], arguments: argparse.Namespace
) -> dict[Key, Record]:
    """The episodes that are played here, by side, question and number of the sample."""
    casts = {side: player.cast(job.folder, arguments.concurrency) for side, player in players.items()}
    try:
        # One for both sides: a base model's overview may need it too.
        retriever = next(iter(casts.values())).retriever()
        works = {side: _work(players[side], casts[side], retriever, arguments.samples) for side in players}
        items: dict[Key, tuple[str, VideoQA, int]] = {
            (side, *key_of(qa), number): (side, qa, number)
            for side in players
            for qa in rows
            for number in range(arguments.samples)
        }

        async def play(item: tuple[str, VideoQA, int]) -> Outcome:
            side, qa, number = item
            record = await works[side](qa, number)
            if "acc" not in record.rewards:
                raise SetupError(f"row {qa.id} couldn't be graded: is agentic_video.judge set, and does it reply?")
            rewards = record.rewards
            usage = Usage(
                int(rewards["prompt_tokens"]), int(rewards["completion_tokens"]), len(record.trajectory.turns)
            )
            return Outcome(result=record.to_dict(), usage=usage)

        outcomes = await job.play(items, play, arguments.concurrency)
        return {key: Record.from_dict(outcome.result) for key, outcome in outcomes.items()}
    finally:
        for one in casts.values():
            one.close()


def _work(
    player: teachers.Teacher, shared: EvalContext, retriever: Retriever | None, samples: int
) -> Callable[[VideoQA, int], Awaitable[Record]]:
    """Plays and grades a sample of a question."""
    casts = [with_backend(shared, backend) for backend in player.backends(shared, samples)]

    async def work(qa: VideoQA, number: int) -> Record:
        record = await play_one(casts[number], retriever, qa)
        provenance = {"source": "classify", "model": player.name, "sample": number}
        return replace(record, provenance=provenance)

    return work
