"""The questions at which a run's agent fails, from its recorded episodes.

Each question is one row, which GRPO reads as it is; ``extra_info.mined`` says how often the agent was right and what
else it answered. :mod:`agentic_video.synthesis.enhance` shows them to a teacher. No model is asked.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt
from tyro.conf import Positional

from agentic_video.synthesis.inputs import (
    NO_FAULT_OF_ITS_OWN,
    Counted,
    Question,
    question_of,
    read_episodes,
)
from agentic_video.types.jsonl import json_line
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.utils.errors import SetupError
from agentic_video.utils.journal import write_whole
from agentic_video.utils.option_types import Fraction, OutputFile

FIELD = "mined"
"""Key of ``extra_info`` under which a row says how it was failed."""
MAX_ANSWERS = 4
MAX_ANSWER_CHARS = 300


@dataclass(frozen=True)
class FailedQuestion:
    """A question that the agent mostly fails."""

    qa: VideoQA
    accuracy: float  # mean grade of its episodes, 0 to 1
    episodes: int  # how many there are
    answers: tuple[str, ...]  # the most frequent wrong answers, cut; without those episodes that ended without one

    def to_row(self) -> dict[str, Any]:
        """A row of the schema."""
        mined = {"accuracy": self.accuracy, "episodes": self.episodes, "answers": list(self.answers)}
        return replace(self.qa, extra={**self.qa.extra, FIELD: mined}).to_row()


@dataclass
class _EpisodeCounts:
    """What is kept of a question's episodes."""

    qa: VideoQA  # as the last one asked it
    grades: float = 0.0  # their sum
    count: int = 0  # how many there are
    wrong: Counter[str] = field(default_factory=Counter)  # how often each wrong answer was given

    def add(self, record: Record, right_from: float) -> None:
        grade, answer = record.rewards["acc"], record.trajectory.answer
        self.qa = record.qa
        self.grades += grade
        self.count += 1
        if answer and grade < right_from:
            self.wrong[answer[:MAX_ANSWER_CHARS]] += 1

    def most_said(self) -> tuple[str, ...]:
        return tuple(sorted(self.wrong, key=lambda answer: (-self.wrong[answer], answer))[:MAX_ANSWERS])


def failed_questions(
    records: Iterable[Record], below: float, min_episodes: int = 1, right_from: float = 0.5
) -> tuple[list[FailedQuestion], Counter[str]]:
    """The questions whose mean accuracy is low."""
    groups: dict[Question, _EpisodeCounts] = {}
    counts: Counter[str] = Counter()
    for record in records:
        if record.trajectory.end in NO_FAULT_OF_ITS_OWN:
            counts["episodes that an engine or a video ended"] += 1
        elif "acc" not in record.rewards:
            counts["episodes without a grade (reward_extra_info.acc)"] += 1
        else:
            groups.setdefault(question_of(record), _EpisodeCounts(record.qa)).add(record, right_from)
    failed = []
    for episodes in groups.values():
        accuracy = episodes.grades / episodes.count
        if episodes.count < min_episodes:
            counts[f"questions with fewer than {min_episodes} episodes"] += 1
        elif accuracy >= below:
            counts[f"questions with an accuracy from {below:g} on"] += 1
        else:
            failed.append(FailedQuestion(_plain(episodes.qa), accuracy, episodes.count, episodes.most_said()))
    failed.sort(key=lambda one: (one.accuracy, one.qa.data_source, one.qa.id, one.qa.video))
    return failed, counts


def _plain(qa: VideoQA) -> VideoQA:
    """A row as it was before an earlier round of mining."""
    return replace(qa, extra={key: value for key, value in qa.extra.items() if key != FIELD})


@dataclass(frozen=True)
class MineOptions:
    """Selection of failed questions."""

    records: Annotated[Positional[tuple[Path, ...]], Field(min_length=1)]
    """files of records, or folders of runs or evaluations"""
    out: OutputFile
    """file of rows to write: .jsonl"""
    below: Fraction = 0.5
    """mean accuracy below which a question counts as failed"""
    right_from: Fraction = 0.5
    """grade below which a single answer is wrong"""
    min_episodes: PositiveInt = 1
    """leave out questions with fewer graded episodes"""
    from_step: NonNegativeInt = 0
    """only episodes from this step of the run on (provenance.step)"""
    limit: PositiveInt | None = None
    """only the N least accurate questions (default: all)"""


@dataclass(frozen=True)
class MiningReport:
    """What was found."""

    episodes: int  # how many were looked at
    failed: int  # how many questions are failed
    written: tuple[FailedQuestion, ...]  # those of them that were written
    left_out: Counter[str]  # how many episodes and questions were left out, by reason


def mine(options: MineOptions) -> MiningReport:
    """Write the questions at which an agent fails, the least accurate first."""
    if options.out.suffix != ".jsonl":
        raise SetupError(f"--out {options.out}: expected a name that ends in .jsonl")
    records = Counted(read_episodes(options.records, options.from_step, options.out))
    failed, counts = failed_questions(records, options.below, options.min_episodes, options.right_from)
    rows = failed[: options.limit]
    write_whole(options.out, (json_line(one.to_row()) for one in rows))
    return MiningReport(records.count, len(failed), tuple(rows), counts)
