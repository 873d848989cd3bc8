"""``agentic-video mine``: the questions at which a run's agent fails, from its recorded episodes.

    agentic-video mine outputs/eva-cluster/run-001 --below 0.5 --out mined.jsonl

Each question is one row, which GRPO reads as it is; ``extra_info.mined`` says how often the agent was right and what
else it answered. ``agentic-video enhance`` shows them to a teacher. No model is asked.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentic_video.synthesis.inputs import fraction, positive, read_episodes
from agentic_video.types.jsonl import json_line
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.utils.errors import SetupError
from agentic_video.utils.journal import write_whole

FIELD = "mined"
"""Key of ``extra_info`` under which a row says how it was failed."""
MAX_ANSWERS = 4
MAX_ANSWER_CHARS = 300

UNPLAYED = ("engine_error", "tool_error")
"""Ends that say nothing about the agent."""


@dataclass(frozen=True)
class Failed:
    """A question that the agent mostly fails.

    Attributes:
        accuracy: Mean grade of its episodes, 0 to 1.
        episodes: How many there are.
        answers: The most frequent wrong answers, cut; without those episodes that ended without one.
    """

    qa: VideoQA
    accuracy: float
    episodes: int
    answers: tuple[str, ...]

    def to_row(self) -> dict[str, Any]:
        """A row of the schema."""
        mined = {"accuracy": self.accuracy, "episodes": self.episodes, "answers": list(self.answers)}
        return replace(self.qa, extra={**self.qa.extra, FIELD: mined}).to_row()


def failed_questions(
    records: Iterable[Record], below: float, min_episodes: int = 1, right_from: float = 0.5
) -> tuple[list[Failed], Counter[str]]:
    """The questions whose mean accuracy is low.

    Args:
        records: Episodes; those of a question are pooled, whatever step they are from.
        below: A question is failed when its mean accuracy is below this.
        min_episodes: A question with fewer graded episodes is left out.
        right_from: An answer with a grade below this is a wrong one.

    Returns:
        The failed questions, the least accurate first, and how many episodes and questions were left out and why.
    """
    groups: dict[tuple[str, str, str], list[Record]] = {}
    counts: Counter[str] = Counter()
    for record in records:
        if record.trajectory.end in UNPLAYED:
            counts["episodes that an engine or a video ended"] += 1
        elif "acc" not in record.rewards:
            counts["episodes without a grade (reward_extra_info.acc)"] += 1
        else:
            groups.setdefault((record.qa.data_source, record.qa.id, record.qa.video), []).append(record)
    failed = []
    for members in groups.values():
        accuracy = sum(member.rewards["acc"] for member in members) / len(members)
        if len(members) < min_episodes:
            counts[f"questions with fewer than {min_episodes} episodes"] += 1
        elif accuracy >= below:
            counts[f"questions with an accuracy from {below:g} on"] += 1
        else:
            answers = _wrong_answers(members, right_from)
            failed.append(Failed(_plain(members[-1].qa), accuracy, len(members), answers))
    failed.sort(key=lambda one: (one.accuracy, one.qa.data_source, one.qa.id, one.qa.video))
    return failed, counts


def _wrong_answers(records: Sequence[Record], right_from: float) -> tuple[str, ...]:
    said = Counter(
        record.trajectory.answer[:MAX_ANSWER_CHARS]
        for record in records
        if record.trajectory.answer and record.rewards["acc"] < right_from
    )
    return tuple(sorted(said, key=lambda answer: (-said[answer], answer))[:MAX_ANSWERS])


def _plain(qa: VideoQA) -> VideoQA:
    """A row as it was before an earlier round of mining."""
    return replace(qa, extra={key: value for key, value in qa.extra.items() if key != FIELD})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``agentic-video mine``."""
    parser.add_argument("records", nargs="+", type=Path, help="files of records, or folders of runs or evaluations")
    parser.add_argument("--out", type=Path, required=True, help="the .jsonl file of rows to write")
    parser.add_argument("--below", type=fraction, default=0.5, help="mean accuracy below which a question counts as "
                        "failed (%(default)s)")  # fmt: skip
    parser.add_argument("--right-from", type=fraction, default=0.5, help="grade below which a single answer is wrong "
                        "(%(default)s)")  # fmt: skip
    parser.add_argument("--min-episodes", type=positive, default=1, metavar="N", help="leave out questions with fewer "
                        "graded episodes (%(default)s)")  # fmt: skip
    parser.add_argument("--from-step", type=int, default=0, metavar="STEP", help="only episodes from this step of the "
                        "run on (provenance.step)")  # fmt: skip
    parser.add_argument("--limit", type=positive, metavar="N", help="only the N least accurate questions")


def run(arguments: argparse.Namespace) -> int:
    """Mine; 0, 1 when no question is failed, 2 when there is nothing to read."""
    try:
        if arguments.out.suffix != ".jsonl":
            raise SetupError(f"--out {arguments.out}: expected a name that ends in .jsonl")
        records = read_episodes(arguments.records)
        if arguments.from_step:
            records = [record for record in records if _step(record) >= arguments.from_step]
        failed, counts = failed_questions(records, arguments.below, arguments.min_episodes, arguments.right_from)
        rows = failed[: arguments.limit]
        write_whole(arguments.out, (json_line(one.to_row()) for one in rows))
    except (SetupError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(records):,} episodes, {len(failed):,} questions failed, {len(rows):,} written to {arguments.out}")
    for reason, count in sorted(counts.items()):
        print(f"  left out: {count:,} {reason}")
    if rows:
        print(f"  mean accuracy of those written: {100 * sum(one.accuracy for one in rows) / len(rows):.1f} %")
    return 0 if rows else 1


def _step(record: Record) -> float:
    step = record.provenance.get("step")
    return step if isinstance(step, int | float) else 0
