"""Questions at which a run's agent fails, from its recorded episodes.

Each question is one row, which GRPO reads as it is; ``extra_info.mined`` has the agent's accuracy and its wrong
answers. :mod:`agentic_video.synthesis.enhance` shows them to a teacher. No model is asked.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import NonNegativeInt, PositiveInt

from agentic_video.synthesis.inputs import (
    INFRASTRUCTURE_ENDS,
    EpisodeOptions,
    Question,
    check_jsonl,
    question_of,
    read_episodes,
)
from agentic_video.types.jsonl import json_line
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.utils.option_types import Fraction, OutputFile
from agentic_video.utils.workdir import write_whole

FIELD = "mined"
"""Key of ``extra_info`` that describes the failure."""
MAX_ANSWERS = 4
MAX_ANSWER_CHARS = 300


@dataclass(frozen=True)
class MineOptions(EpisodeOptions):
    """Selection of failed questions."""

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
class FailedQuestion:
    """A question that the agent mostly fails."""

    qa: VideoQA
    accuracy: float  # mean grade of its episodes, 0 to 1
    episodes: int
    answers: tuple[str, ...]  # the most frequent wrong ones, cut

    def to_row(self) -> dict[str, Any]:
        """A row of the schema."""
        mined = {"accuracy": self.accuracy, "episodes": self.episodes, "answers": list(self.answers)}
        return replace(self.qa, extra={**self.qa.extra, FIELD: mined}).to_row()


@dataclass(frozen=True)
class MiningReport:
    """Numbers of episodes and questions."""

    episodes: int
    failed: int  # questions
    written: tuple[FailedQuestion, ...]
    left_out: Counter[str]  # episodes and questions, by reason


@dataclass
class _EpisodeCounts:
    """Grades of a question's episodes, and how often each wrong answer was given."""

    qa: VideoQA
    grades: list[float] = field(default_factory=list)
    wrong: Counter[str] = field(default_factory=Counter)


def failed_questions(
    records: Iterable[Record], below: float, min_episodes: int = 1, right_from: float = 0.5
) -> tuple[list[FailedQuestion], Counter[str], int]:
    """The questions of low mean accuracy, the least accurate first; what was left out, by reason; number of episodes.

    The episodes of a question are pooled, whatever step they are from; the last one's row counts. See
    :class:`MineOptions` for the bounds.
    """
    groups: dict[Question, _EpisodeCounts] = {}
    left_out: Counter[str] = Counter()
    for record in records:
        grade, answer = record.rewards.get("acc"), record.trajectory.answer
        if record.trajectory.end in INFRASTRUCTURE_ENDS:
            left_out["episodes that an engine or a video ended"] += 1
        elif grade is None:
            left_out["episodes without a grade (reward_extra_info.acc)"] += 1
        else:
            group = groups.setdefault(question_of(record), _EpisodeCounts(record.qa))
            group.qa = record.qa
            group.grades.append(grade)
            if answer and grade < right_from:
                group.wrong[answer[:MAX_ANSWER_CHARS]] += 1
    episodes = left_out.total() + sum(len(group.grades) for group in groups.values())
    failed = []
    for group in groups.values():
        accuracy = sum(group.grades) / len(group.grades)
        if len(group.grades) < min_episodes:
            left_out[f"questions with fewer than {min_episodes} episodes"] += 1
        elif accuracy >= below:
            left_out[f"questions with an accuracy from {below:g} on"] += 1
        else:
            # without the mark of an earlier round of mining
            qa = replace(group.qa, extra={key: value for key, value in group.qa.extra.items() if key != FIELD})
            answers = sorted(group.wrong.items(), key=lambda item: (-item[1], item[0]))[:MAX_ANSWERS]
            failed.append(FailedQuestion(qa, accuracy, len(group.grades), tuple(answer for answer, _ in answers)))
    failed.sort(key=lambda question: (question.accuracy, question.qa.data_source, question.qa.id, question.qa.video))
    return failed, left_out, episodes


def mine(options: MineOptions) -> MiningReport:
    """Write the questions at which an agent fails, the least accurate first."""
    check_jsonl(options.out)
    records = read_episodes(options.records, options.from_step, options.out)
    failed, left_out, episodes = failed_questions(records, options.below, options.min_episodes, options.right_from)
    rows = failed[: options.limit]
    write_whole(options.out, (json_line(question.to_row()) for question in rows))
    return MiningReport(episodes, len(failed), tuple(rows), left_out)
