"""Inputs of the synthesis commands: recorded episodes of runs and evaluations, rows, and draws that need no chance."""

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field
from tyro.conf import Positional

from agentic_video.datasets.rows import load_rows, reported
from agentic_video.evaluation.options import check_files
from agentic_video.evaluation.results import JOURNALS, REVISION, Key, distinct, key_of, revision_of
from agentic_video.graders.answer import match_choice
from agentic_video.types.record import MisplacedRowError, Record, RecordError, each_record, rows_instead
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason
from agentic_video.utils.errors import SetupError
from agentic_video.utils.option_types import OutputFile
from agentic_video.utils.workdir import check_output, write_whole

T = TypeVar("T")

EPISODE_FILES = ("episodes-*.jsonl", "step_*.jsonl", "episodes/step_*.jsonl")
"""Files of episodes in the folder of an evaluation, of a run's episodes, and of a run."""

Question = tuple[str, str, str]
"""Data source, id and video."""

INFRASTRUCTURE_ENDS = (EndReason.ENGINE_ERROR, EndReason.TOOL_ERROR)
"""Ends that aren't the agent's fault."""


def episode_files(paths: Sequence[Path]) -> list[Path]:
    """The files of records that paths name, or those of a run's or an evaluation's folder; each file once."""
    files: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            found = sorted(file for pattern in EPISODE_FILES for file in path.glob(pattern))
            if not found:
                raise SetupError(
                    f"{path}: no episodes there; expected the folder of an evaluation (episodes-*.jsonl), "
                    "or of a run with agentic_video.episodes_dir (episodes/step_*.jsonl)",
                    key=str(path),
                )
        elif path.is_file():
            found = [path]
        else:
            raise SetupError(f"{path}: no such file or folder", key=str(path))
        for file in found:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def read_episodes(paths: Sequence[Path], from_step: int = 0, out: Path | None = None) -> Iterator[Record]:
    """The records that paths name (see :func:`episode_files`), one after the other: a long run's don't fit into memory.

    Bad lines are skipped, and reported at the end; an error if no record is left.

    Args:
        from_step: Only episodes from this step of the run on; 0: all.
        out: The file that will be made of them, which must not be one of theirs.
    """
    files = episode_files(paths)
    if out is not None:
        check_output(out, files)
    return _episodes(files, from_step)


def _episodes(files: Sequence[Path], from_step: int) -> Iterator[Record]:
    problems, any_good = list[RecordError](), False
    named = ", ".join(map(str, files))
    try:
        for folder, members in groupby(files, lambda file: file.parent):
            revisions = _revisions(folder)
            for record in each_record(members):
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
    if problems and not any_good and all(isinstance(problem, MisplacedRowError) for problem in problems):
        raise SetupError(rows_instead(named, "records (finished episodes) are read here"))
    report_problems(problems, "record")
    if not any_good:
        raise SetupError(f"no usable record in {named}")


def of_system(records: Iterable[Record], system: str, why: str) -> Iterator[Record]:
    """A system's records; the others are counted on standard error. Without any, a SetupError at the end says ``why``
    they are needed."""
    found: Counter[str] = Counter()
    for record in records:
        found[record.trajectory.system] += 1
        if record.trajectory.system == system:
            yield record
    if system not in found:
        raise SetupError(f"no episode of {system}, {why}; there are episodes of {', '.join(sorted(found))}")
    if others := found.total() - found[system]:
        print(f"{others} episodes of other systems left out", file=sys.stderr)


def _revisions(folder: Path) -> dict[Key, int]:
    """The latest revision of each question whose episode an evaluation has replaced: the earlier one is still in a
    journal of its folder."""
    latest: dict[Key, int] = {}
    mark = f'"{REVISION}"'.encode()
    for record in each_record(sorted(folder.glob(JOURNALS)), lambda line: mark in line):
        if not isinstance(record, RecordError) and (revision := revision_of(record)):
            latest[key_of(record.qa)] = max(revision, latest.get(key_of(record.qa), 0))
    return latest


@dataclass(frozen=True)
class EpisodeOptions:
    """Selection of recorded episodes."""

    records: Annotated[Positional[tuple[Path, ...]], Field(min_length=1)]
    """files of records, or folders of runs or evaluations"""


@dataclass(frozen=True)
class CountOptions(EpisodeOptions):
    """Episodes to count."""

    out: OutputFile | None = None
    """write the numbers to this JSON file too"""

    def counted(self, count: Callable[[Iterator[Record]], dict[str, Any]]) -> dict[str, Any]:
        """Numbers about the episodes, written to the file where there is one."""
        summary = count(read_episodes(self.records, out=self.out))
        if self.out is not None:
            write_whole(self.out, [json.dumps(summary, indent=2) + "\n"])
        return summary


@dataclass(frozen=True)
class QuestionSet:
    """Questions of data files, each once."""

    rows: Sequence[VideoQA]
    excluded: int = 0  # rows that are unusable or repeated

    def first(self, limit: int | None) -> "QuestionSet":
        """The first questions; all of them without a limit."""
        return QuestionSet(self.rows[:limit], self.excluded)

    @property
    def numbers(self) -> dict[str, int]:
        """Excluded rows for a job's report, if any."""
        return {"rows_left_out": self.excluded} if self.excluded else {}


def read_questions(paths: Sequence[Path]) -> QuestionSet:
    """The questions in the files of ``--data``; bad rows are reported and excluded."""
    check_files(paths, "--data")
    rows, problems = load_rows(paths)
    rows, repeated = distinct(rows)
    report_problems([*problems, *repeated], "row")
    return QuestionSet(rows, len(problems) + len(repeated))


def grade_of(record: Record) -> float | None:
    """The recorded accuracy, else that of a choice; None where neither is known."""
    if "acc" in record.rewards:
        return record.rewards["acc"]
    if not record.qa.hidden and record.qa.answer_type == "multiple_choice":
        return float(match_choice(record.trajectory.answer, record.qa, "robust"))
    return None


def question_of(record: Record) -> Question:
    """The question that an episode is about."""
    return record.qa.data_source, record.qa.id, record.qa.video


def step_of(record: Record) -> float:
    """The training step that an episode is from; 0 where its record doesn't tell."""
    step = record.provenance.get("step")
    return step if isinstance(step, int | float) else 0


def report_problems(problems: Sequence[object], what: str) -> None:
    """Name the first bad inputs on standard error, and count all."""
    for line in reported(problems, what):
        print(line, file=sys.stderr)


def check_jsonl(out: Path) -> None:
    """Check that an output's name ends in .jsonl."""
    if out.suffix != ".jsonl":
        raise SetupError(f"--out {out}: expected a name that ends in .jsonl", key="--out")


def digest(*parts: object) -> str:
    """A name for some texts and numbers; 40 hex digits, the same everywhere."""
    # A length before each part: ("ab", "c") must not be ("a", "bc"). Half a surrogate pair is no UTF-8.
    text = "".join(f"{len(str(part))}:{part}" for part in parts)
    return hashlib.sha1(text.encode("utf-8", errors="surrogatepass"), usedforsecurity=False).hexdigest()


def content_of(qa: VideoQA) -> str:
    """A short name for a question's content without its video's folder; another one when its answer is corrected."""
    return digest(json.dumps({**qa.to_row(), "video": os.path.basename(qa.video)}))[:16]


def drawn(names: Iterable[T], count: int, seed: int) -> set[T]:
    """A random subset of some names: the same whatever their order, and with few changes when names are added."""
    return set(sorted(set(names), key=lambda name: (digest(seed, repr(name)), repr(name)))[: max(0, count)])
