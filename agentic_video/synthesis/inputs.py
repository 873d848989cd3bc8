"""What the commands read, and how they choose from it: recorded episodes of runs and evaluations, without chance."""

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from agentic_video.datasets.rows import load_rows, reported
from agentic_video.evaluation.options import check_files
from agentic_video.evaluation.results import JOURNALS, REVISION, Key, distinct, key_of, revision_of
from agentic_video.graders.answer import match_choice
from agentic_video.types.record import Record, RecordError, RowInstead, each_record, rows_instead
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason
from agentic_video.utils.errors import SetupError
from agentic_video.utils.journal import check_output

T = TypeVar("T")

EPISODE_FILES = ("episodes-*.jsonl", "step_*.jsonl", "episodes/step_*.jsonl")
"""Where episodes are in the folder of an evaluation, of a run's episodes, and of a run."""

Question = tuple[str, str, str]
"""Data source, id and video of one."""

NO_FAULT_OF_ITS_OWN = (EndReason.ENGINE_ERROR, EndReason.TOOL_ERROR)
"""Ends that say nothing about the agent."""


def episode_files(paths: Sequence[Path]) -> list[Path]:
    """The files of trajectory records that paths name: themselves, or those of a run's or an evaluation's folder.

    Each is there once, at its first place, however often and by whatever name paths lead to it."""
    files: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            found = sorted(file for pattern in EPISODE_FILES for file in path.glob(pattern))
            if not found:
                raise SetupError(
                    f"{path}: no episodes there; expected the folder of an evaluation (episodes-*.jsonl), "
                    "or of a run with agentic_video.episodes_dir (episodes/step_*.jsonl)"
                )
        elif path.is_file():
            found = [path]
        else:
            raise SetupError(f"{path}: no such file or folder")
        for file in found:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def read_episodes(paths: Sequence[Path], from_step: int = 0, out: Path | None = None) -> Iterator[Record]:
    """The records that paths name (see :func:`episode_files`), one after the other: a long run's don't fit into memory.

    Bad lines are left out, and reported at the end."""
    files = episode_files(paths)
    if out is not None:
        check_output(out, files)
    return _episodes(files, from_step)


def _episodes(files: Sequence[Path], from_step: int) -> Iterator[Record]:
    problems, any_good = list[RecordError](), False
    try:
        for folder, named in groupby(files, lambda file: file.parent):
            revisions = _revisions(folder)
            for record in each_record(named):
                if isinstance(record, RecordError):
                    problems.append(record)
                    continue
                if revision_of(record) < revisions.get(key_of(record.qa), 0):
                    continue
                any_good = True
                if not from_step or step_of(record) >= from_step:
                    yield record
    except RecordError as error:
        raise SetupError(str(error)) from error
    if problems and not any_good and all(isinstance(problem, RowInstead) for problem in problems):
        raise SetupError(rows_instead(", ".join(map(str, files)), "records (finished episodes) are read here"))
    report_problems(problems, "record")
    if not any_good:
        raise SetupError(f"no usable record in {', '.join(map(str, files))}")


def of_system(records: Iterable[Record], system: str, why: str) -> Iterator[Record]:
    """A system's records, of which there must be one; the others are counted on stderr."""
    found: Counter[str] = Counter()
    for record in records:
        found[record.trajectory.system] += 1
        if record.trajectory.system == system:
            yield record
    if system not in found:
        raise SetupError(f"no episode of {system}, {why}; there are episodes of {', '.join(sorted(found))}")
    if others_left := found.total() - found[system]:
        print(f"{others_left} episodes of other systems left out", file=sys.stderr)


def _revisions(folder: Path) -> dict[Key, int]:
    """The latest revision of each question whose episode an evaluation has replaced, as after a corrected answer: the
    earlier one is still in a journal of its folder."""
    found: dict[Key, int] = {}
    mark = f'"{REVISION}"'.encode()
    for record in each_record(sorted(folder.glob(JOURNALS)), lambda line: mark in line):
        if not isinstance(record, RecordError) and (revision := revision_of(record)):
            found[key_of(record.qa)] = max(revision, found.get(key_of(record.qa), 0))
    return found


class Counted(Iterator[T]):
    """Passes things on."""

    def __init__(self, items: Iterable[T]):
        self._items = iter(items)
        self.count = 0

    def __next__(self) -> T:
        item = next(self._items)
        self.count += 1
        return item


@dataclass(frozen=True)
class QuestionSet:
    """What data files hold."""

    rows: Sequence[VideoQA]  # the questions, each once
    left_out: int = 0  # how many rows are none, or were there before

    def first(self, limit: int) -> "QuestionSet":
        """So many of them from the start; all of them where the limit is 0."""
        return QuestionSet(first(self.rows, limit), self.left_out)

    @property
    def numbers(self) -> dict[str, int]:
        """For a job's report: how many rows are none, where there are such."""
        return {"rows_left_out": self.left_out} if self.left_out else {}


def read_questions(paths: Sequence[Path]) -> QuestionSet:
    """The rows of the data files that ``--data`` names, each question once; bad rows are reported and left out."""
    check_files(paths, "--data")
    rows, problems = load_rows(paths)
    rows, repeated = distinct(rows)
    report_problems([*problems, *repeated], "row")
    return QuestionSet(rows, len(problems) + len(repeated))


def first(items: Sequence[T], limit: int) -> Sequence[T]:
    """So many of some items from the start; all of them where the limit is 0."""
    return items[:limit] if limit > 0 else items


def grade_of(record: Record) -> float | None:
    """The recorded accuracy, else whether a choice is right; None where nothing says, or the answer is hidden."""
    if "acc" in record.rewards:
        return record.rewards["acc"]
    if not record.qa.hidden and record.qa.answer_type == "multiple_choice":
        return float(match_choice(record.trajectory.answer, record.qa, "robust"))
    return None


def question_of(record: Record) -> Question:
    """The question that an episode is about."""
    return record.qa.data_source, record.qa.id, record.qa.video


def step_of(record: Record) -> float:
    """The training step that an episode is from; 0 where its record doesn't say."""
    step = record.provenance.get("step")
    return step if isinstance(step, int | float) else 0


def report_problems(problems: Sequence[object], what: str) -> None:
    """Name the first bad inputs and count all."""
    for line in reported(problems, what):
        print(line, file=sys.stderr)


def digest(*parts: object) -> str:
    """A name for some texts and numbers; 40 hex digits, the same everywhere."""
    # A length before each part: ("ab", "c") must not be ("a", "bc"). Half a surrogate pair is no UTF-8.
    text = "".join(f"{len(str(part))}:{part}" for part in parts)
    return hashlib.sha1(text.encode("utf-8", errors="surrogatepass"), usedforsecurity=False).hexdigest()


def content_of(qa: VideoQA) -> str:
    """A short name for all that a question says, but for its video's folder: another one when its answer is mended."""
    return digest(json.dumps({**qa.to_row(), "video": os.path.basename(qa.video)}))[:16]


def drawn(names: Iterable[T], count: int, seed: int) -> set[T]:
    """So many of some names, as if drawn by lot: the same ones whatever their order, and with few changes when names
    are added."""
    return set(sorted(set(names), key=lambda name: (digest(seed, repr(name)), repr(name)))[: max(0, count)])
