"""Accuracy and reward of a run's validations on held-out questions, with the error of their rise."""

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agentic_video.report.metrics import series
from agentic_video.report.viewer.safe_json import finite
from agentic_video.utils.standard_error import paired_difference
from agentic_video.utils.workdir import write_whole

GREEDY = "greedy"
"""Key of a row and of an episode's ``extra_fields``: greedy decoding. Ends the data source's name in such episodes'
figures."""
SAMPLED = "sampled"
REWARD_ERROR = "reward_error"
"""End of the key of the standard error of a validation's mean reward (:mod:`agentic_video.training.logs.metrics`)."""
SHARED = 0.9
"""Least share of a validation's questions that two of them must share for an error by question."""
_FILE = re.compile(r"held_out_(\d+)\.jsonl")


@dataclass(frozen=True)
class HeldOutScore:
    """Scores of one episode of a validation."""

    data_source: str  # of its question
    greedy: bool  # greedy decoding
    question: str  # the id of its row
    video: str  # what the question is about
    accuracy: float  # the answer's grade, 0 to 1
    reward: float  # what GRPO would have seen


Scores = Mapping[int, Sequence[HeldOutScore]]
"""The episodes of a run's validations by step."""


def write_scores(folder: Path, step: int, scores: Iterable[HeldOutScore]) -> None:
    """Write one validation's scores, a line of json each, to ``held_out_<step>.jsonl``.

    Raises:
        OSError: The file can't be written; nothing is left of it.
    """
    write_whole(folder / f"held_out_{step:06d}.jsonl", (json.dumps(asdict(score)) + "\n" for score in scores))


def read_scores(folder: Path) -> Scores:
    """The scores that :func:`write_scores` left in a folder; a file that can't be read is passed over."""
    found = {}
    for file in sorted(folder.glob("held_out_*.jsonl")):
        if match := _FILE.fullmatch(file.name):
            try:
                lines = file.read_text(encoding="utf-8").splitlines()
                found[int(match[1])] = [_score(line) for line in lines]
            except (OSError, ValueError, TypeError, RecursionError):
                continue
    return found


def _score(line: str) -> HeldOutScore:
    score = HeldOutScore(**json.loads(line))
    if not isinstance(score.question, str) or not isinstance(score.video, str):
        raise TypeError("no text")
    if finite(score.accuracy) is None or finite(score.reward) is None:
        raise TypeError("no number")
    return score


@dataclass(frozen=True)
class HeldOut:
    """Scores of a data source's held-out questions over a run."""

    source: str  # the questions' data source
    how: str  # whether the episodes were ``sampled`` or ``greedy``
    steps: Sequence[int]  # after which of them it was measured
    values: Sequence[float]  # mean accuracies or rewards
    errors: Sequence[float]  # their standard errors; inf where one isn't known
    episodes: int  # of each measurement; 0 where that isn't known
    # standard error of the rise, question by question and clustered by video; None where the questions' own scores
    # aren't known
    paired: float | None = None

    @property
    def name(self) -> str:
        """The questions, and how they were answered."""
        return f"{self.source}, {self.how}"

    @property
    def rise(self) -> float:
        """From the first measurement to the last."""
        return self.values[-1] - self.values[0]

    @property
    def error(self) -> float:
        """Standard error of the rise: the paired one, or else as if every measurement asked other questions.

        inf where neither is known.
        """
        return math.hypot(self.errors[0], self.errors[-1]) if self.paired is None else self.paired

    def __str__(self) -> str:
        measured = ", ".join(
            f"{value:.3f} after step {step}" for step, value in zip(self.steps, self.values, strict=True)
        )
        text = f"{self.name}{f' ({self.episodes} episodes)' if self.episodes else ''}: {measured}"
        if len(self.steps) < 2:
            return text
        how = "" if self.paired is None else " by question"
        return f"{text}; {self.rise:+.3f}" + (
            f", standard error {self.error:.3f}{how}" if math.isfinite(self.error) else ""
        )


def held_out_accuracies(metrics: Mapping[int, Mapping[str, float]], scores: Scores | None = None) -> list[HeldOut]:
    """Accuracies of a run's validations, sampled and greedy, for each data source."""
    found = []
    for name, key in _measured(metrics).items():
        episodes = _episodes(metrics, name)
        source, how = _source_and_how(name)
        steps, values = series(metrics, key)
        errors = [math.sqrt(max(0.0, p * (1 - p)) / episodes) if episodes > 0 else math.inf for p in values]
        paired = _paired_error(scores or {}, steps, source, how, "accuracy")
        found.append(HeldOut(source, how, steps, values, errors, episodes, paired))
    return found


def held_out_rewards(metrics: Mapping[int, Mapping[str, float]], scores: Scores | None = None) -> list[HeldOut]:
    """Rewards of the same episodes; empty for a run that didn't log the error."""
    found = []
    for name in _measured(metrics):
        start = f"val-agentic/{name}/"
        both = {step: values for step, values in metrics.items() if f"{start}reward" in values}
        steps, errors = series(both, start + REWARD_ERROR)
        if steps:
            source, how = _source_and_how(name)
            values = [both[step][f"{start}reward"] for step in steps]
            paired = _paired_error(scores or {}, steps, source, how, "reward")
            found.append(HeldOut(source, how, steps, values, errors, _episodes(metrics, name), paired))
    return found


def _paired_error(scores: Scores, steps: Sequence[int], source: str, how: str, figure: str) -> float | None:
    """Standard error of a figure's rise from the first of some steps to the last, over the questions of both."""
    if len(steps) < 2 or steps[0] not in scores or steps[-1] not in scores:
        return None
    first, last = (
        [score for score in scores[step] if score.data_source == source and score.greedy == (how == GREEDY)]
        for step in (steps[0], steps[-1])
    )
    before, after = _by_question(first, figure), _by_question(last, figure)
    rise = paired_difference(after, before, {score.question: score.video for score in (*first, *last)})
    return rise.error if rise.questions >= SHARED * max(len(before), len(after)) else None


def _by_question(scores: Sequence[HeldOutScore], figure: str) -> dict[str, float]:
    """The mean of a figure over the episodes of each question."""
    values: dict[str, list[float]] = defaultdict(list)
    for score in scores:
        values[score.question].append(getattr(score, figure))
    return {question: statistics.fmean(each) for question, each in values.items()}


def _measured(metrics: Mapping[int, Mapping[str, float]]) -> dict[str, str]:
    """The key of verl's accuracy for each data source that a run's validations ask of, its greedy episodes apart.

    These come after the sampled ones of the same source: verl logs the two in any order.
    """
    start, figure = "val-core/", "/acc/mean@"
    keys = dict.fromkeys(key for values in metrics.values() for key in values)
    found = {
        key.removeprefix(start).rpartition("/acc/")[0]: key for key in keys if key.startswith(start) and figure in key
    }
    sources = list(dict.fromkeys(_source_and_how(name)[0] for name in found))

    def place(name: str) -> tuple[int, bool]:
        source, how = _source_and_how(name)
        return sources.index(source), how == GREEDY

    return {name: found[name] for name in sorted(found, key=place)}


def _episodes(metrics: Mapping[int, Mapping[str, float]], source: str) -> int:
    """Number of episodes of each validation on a data source; 0 where unknown."""
    return int(min(series(metrics, f"val-agentic/{source}/episodes")[1], default=0))


def _source_and_how(source: str) -> tuple[str, str]:
    """A data source's name and decoding from its name in a validation's keys."""
    base, _, how = source.rpartition("/")
    return (base, how) if base and how == GREEDY else (source, SAMPLED)
