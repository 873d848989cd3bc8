"""Files of an evaluation's folder: settings, journals of episodes, and questions that couldn't be played."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from agentic_video.datasets.rows import Problem
from agentic_video.types.record import Record, load_records, write_record
from agentic_video.types.row import VideoQA
from agentic_video.utils import workdir as files

SETTINGS_FILE = "eval.json"
KNOWN_LATER = ("engine", "model_name", "model_root", "model_content", "judge", "retrieval", "frame_store", "prompts")
"""Settings that may be missing or null: folders of earlier versions lack them, a server may not report what it loaded,
and a judge may be set after all is played. Only two known values can differ."""
JOURNALS = "episodes-*.jsonl"
FAILURES = "failures-*.jsonl"
REVISION = "revision"
"""Key of a record's provenance: how many times the folder's episodes had been replaced when it was written."""

Key = tuple[str, str]
"""A question across data files: its data source and its id."""

NO_VIDEO = "video missing or empty"
UNREADABLE = "unreadable row"
SAME_ID = "id used before by another row"
SAME_ROW = "same row again"
_REASONS = {"row": UNREADABLE, "video": NO_VIDEO}


@dataclass(frozen=True)
class Failure:
    """A question that couldn't be played."""

    key: Key
    error: str  # type of the error and its message


@dataclass(frozen=True)
class ExcludedRow:
    """A row of the data files that isn't played."""

    reason: str  # NO_VIDEO, UNREADABLE, SAME_ID or SAME_ROW
    message: str
    asked: bool = True  # False for rows beyond --limit, and for a row that stands there twice
    submitted: Key | None = None  # where answers aren't published: data source, and the id by which answers are sent in

    def __str__(self) -> str:
        return self.message


def excluded_row(problem: Problem, row: Any = None) -> ExcludedRow:
    """The exclusion of an unusable row, which may hold anything."""
    return ExcludedRow(_REASONS[problem.kind], problem.message, submitted=_submitted(row))


def _submitted(row: Any) -> Key | None:
    extra = row.get("extra_info") if isinstance(row, Mapping) else None
    if not isinstance(extra, Mapping) or extra.get("answer_hidden") is not True or not row.get("options"):
        return None
    source, name = row.get("data_source"), extra.get("original_id", row.get("id"))
    return (source, str(name)) if isinstance(source, str) and name is not None else None


def key_of(qa: VideoQA) -> Key:
    """The question's key."""
    return qa.data_source, qa.id


def distinct(rows: Sequence[VideoQA]) -> tuple[list[VideoQA], list[ExcludedRow]]:
    """Rows whose data source and id weren't there before, and the others. An equal row is no other question."""
    kept: dict[Key, VideoQA] = {}
    repeated = []
    for qa in rows:
        first = kept.setdefault(key_of(qa), qa)
        if first is not qa:
            message = (
                f"{qa.where or 'row'}: id {qa.id!r} of data source {qa.data_source!r} is that of "
                f"{first.where or 'an earlier row'} too; ids must be unique"
            )
            same = first == qa
            repeated.append(ExcludedRow(SAME_ROW if same else SAME_ID, message, asked=not same))
    return list(kept.values()), repeated


def claim_folder(folder: Path, settings: Mapping[str, Any]) -> None:
    """Create an evaluation's folder, or resume one of the same settings (see :data:`KNOWN_LATER`)."""
    files.claim_folder(folder, settings, SETTINGS_FILE, "an evaluation", KNOWN_LATER)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object of a file; empty where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_settings(folder: Path) -> dict[str, Any]:
    """Settings of an evaluation's folder; empty where there are none."""
    return read_json(folder / SETTINGS_FILE)


def same_settings(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return True if a folder's settings and other ones agree, as far as both are known (:data:`KNOWN_LATER`)."""
    return files.difference(found, json.loads(json.dumps(wanted)), KNOWN_LATER) is None


def finished(folder: Path) -> tuple[list[Record], list[str]]:
    """Episodes of a folder's journals, the latest of each question, and a message for each line that is no record.

    The highest revision is the latest, whichever journal holds it. A line that a kill cut short is no record.
    """
    records, problems = load_records(sorted(folder.glob(JOURNALS)))
    latest: dict[Key, Record] = {}
    for record in records:
        before = latest.setdefault(key_of(record.qa), record)
        if revision_of(record) >= revision_of(before):
            latest[key_of(record.qa)] = record
    return list(latest.values()), problems


def revision_of(record: Record) -> int:
    """The record's :data:`REVISION`."""
    revision = record.provenance.get(REVISION, 0)
    return revision if isinstance(revision, int) else 0


def same_question(before: VideoQA, now: VideoQA) -> bool:
    """Return True if an agent is asked the same by two rows; gold (answer, windows) may differ, a video may have moved
    away from its old place."""
    return _asked(before) == _asked(now) and _same_video(before.video, now.video)


def same_gold(before: VideoQA, now: VideoQA) -> bool:
    """Return True if a grade by one of two rows of the same question is a grade by the other."""
    return (before.answer, before.windows, before.hidden) == (now.answer, now.windows, now.hidden)


def _asked(qa: VideoQA) -> str:
    """All but gold and the video's folder, as JSON, like a row that was in a journal."""
    row = {key: value for key, value in qa.to_row().items() if key not in ("answer", "windows", "video", "extra_info")}
    extra = {key: value for key, value in qa.extra.items() if key != "answer_hidden"}
    return json.dumps([row, _without_nulls(extra)], sort_keys=True)


def _without_nulls(value: Any) -> Any:
    """Parquet gives each row the fields of all others."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list | tuple) else value


def _same_video(before: str, now: str) -> bool:
    if before == now or os.path.basename(before) != os.path.basename(now):
        return before == now
    try:
        return not os.path.exists(before) or os.path.samefile(before, now)
    except OSError:
        return False


def failures(folder: Path) -> list[Failure]:
    """Questions that couldn't be played in the latest run."""
    found = []
    for file in sorted(folder.glob(FAILURES)):
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                raw = json.loads(line)
                found.append(Failure((str(raw["data_source"]), str(raw["id"])), str(raw["error"])))
            except (ValueError, KeyError, TypeError):
                continue  # cut short by a kill
    return found


def forget_failures(folder: Path) -> None:
    """Remove the lists of questions that couldn't be played: they are retried."""
    for stale in folder.glob(FAILURES):
        stale.unlink()


def journal(folder: Path, shard: int) -> AbstractContextManager[TextIO]:
    """A shard's journal, open for appending and locked."""
    return files.open_journal(folder / f"episodes-{shard:03d}.jsonl", "evaluation")


def append(file: TextIO, record: Record) -> None:
    """Write a record to disk; a RecordError leaves the file as before."""
    write_record(file, record)
    files.settle(file)
