"""What an evaluation leaves in its folder: journals of episodes, questions that couldn't be played."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from agentic_video.types.record import Record, load_records, write_record
from agentic_video.types.row import VideoQA
from agentic_video.utils import journal as files

SETTINGS_FILE = "eval.json"
"""What an evaluation's folder belongs to."""
KNOWN_LATER = ("engine", "model_name", "model_root", "model_content", "judge", "retrieval", "frame_store", "prompts")
"""Settings that may be unknown, as null or as a key that isn't there: folders of earlier versions say nothing of them,
a server may not say what it loaded, and a judge may be set when all is played. Only two that are known can differ."""
JOURNALS = "episodes-*.jsonl"
"""Finished episodes, a file for each shard."""
REVISION = "revision"
"""In a record's provenance: how often episodes of its folder had been replaced when it was written; 0 isn't noted."""
FAILURES = "failures-*.jsonl"
"""Questions that couldn't be played in the latest run, likewise."""

Key = tuple[str, str]
"""A question across data files: its data source and its id."""


@dataclass(frozen=True)
class Failure:
    """A question that couldn't be played."""

    key: Key  # which one
    error: str  # kind of the error and its message


@dataclass(frozen=True)
class LeftOut:
    """A row of the data files that isn't played."""

    reason: str  # why, in words that rows have in common
    message: str  # which row, and what is wrong with it
    # whether the evaluation asked for it: a row that stands there twice is one question, and rows beyond `--limit`
    # are none
    asked: bool = True
    # where answers aren't published, its data source and the id by which its answer is sent in
    submitted: Key | None = None


NO_VIDEO = "video missing or empty"
UNREADABLE = "unreadable row"
SAME_ID = "id used before by another row"
SAME_ROW = "same row again"


def left_out(problem: str, row: Any = None) -> LeftOut:
    """A row that couldn't be read, by the message about it."""
    video = re.search(r"field 'video': .*(no such file|file is empty|a folder; name)", problem, re.DOTALL)
    return LeftOut(NO_VIDEO if video else UNREADABLE, problem, submitted=_submitted(row))


def _submitted(row: Any) -> Key | None:
    extra = row.get("extra_info") if isinstance(row, Mapping) else None
    if not isinstance(extra, Mapping) or extra.get("answer_hidden") is not True or not row.get("options"):
        return None
    source, name = row.get("data_source"), extra.get("original_id", row.get("id"))
    return (source, str(name)) if isinstance(source, str) and name is not None else None


def repeated(rows: Sequence[VideoQA]) -> list[LeftOut]:
    """The rows whose data source and id were there before. One that is all the same is no other question."""
    before: dict[Key, VideoQA] = {}
    found = []
    for qa in rows:
        first = before.setdefault(key_of(qa), qa)
        if first is qa:
            continue
        message = (
            f"{qa.where or 'row'}: id {qa.id!r} of data source {qa.data_source!r} is that of "
            f"{first.where or 'an earlier row'} too; ids must be unique"
        )
        found.append(LeftOut(SAME_ROW, message, asked=False) if first == qa else LeftOut(SAME_ID, message))
    return found


def key_of(qa: VideoQA) -> Key:
    """What names a question."""
    return qa.data_source, qa.id


def distinct(rows: Sequence[VideoQA]) -> tuple[list[VideoQA], list[str]]:
    """Rows without those whose data source and id were there before, and a message for each, with both places."""
    kept: dict[Key, VideoQA] = {}
    for qa in rows:
        kept.setdefault(key_of(qa), qa)
    return list(kept.values()), [one.message for one in repeated(rows)]


def claim_folder(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make the folder of an evaluation, or go on in one of the same settings.

    What wasn't known of the folder's settings so far (:data:`KNOWN_LATER`) is from now on."""
    files.claim_folder(folder, settings, SETTINGS_FILE, "an evaluation", KNOWN_LATER)


def read_settings(folder: Path) -> dict[str, Any]:
    """What an evaluation's folder belongs to; empty where nobody can say."""
    try:
        found = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def same_settings(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether two evaluations have the same settings, as far as both say (:data:`KNOWN_LATER`)."""
    return files.difference(found, json.loads(json.dumps(wanted)), KNOWN_LATER) is None


def finished(folder: Path) -> tuple[list[Record], list[str]]:
    """The episodes that a folder's journals hold, each question once, and a message for each line that is no record.

    Of several episodes of a question the last one counts: of the highest revision, whichever journal that is in. A line
    that a kill cut short is such a line; its question is played again.
    """
    records, problems = load_records(sorted(folder.glob(JOURNALS)))
    kept: dict[Key, Record] = {}
    for record in records:
        before = kept.setdefault(key_of(record.qa), record)
        if revision_of(record) >= revision_of(before):
            kept[key_of(record.qa)] = record
    return list(kept.values()), problems


def revision_of(record: Record) -> int:
    """See :data:`REVISION`."""
    found = record.provenance.get(REVISION, 0)
    return found if isinstance(found, int) else 0


def same_question(before: VideoQA, now: VideoQA) -> bool:
    """Whether two rows ask an agent the same, so that an episode of one is an episode of the other. Their gold (answer,
    windows) may differ, and a video may have moved: then it is no longer at its old place."""
    return _asked(before) == _asked(now) and _same_video(before.video, now.video)


def same_gold(before: VideoQA, now: VideoQA) -> bool:
    """Whether two rows of the same question have the same gold, so that a grade by one is a grade by the other."""
    return (before.answer, before.windows, before.hidden) == (now.answer, now.windows, now.hidden)


def _asked(qa: VideoQA) -> str:
    """All but its gold and the place of its video, as JSON: a row has gone through that in a journal."""
    row = {key: value for key, value in qa.to_row().items() if key not in ("answer", "windows", "video", "extra_info")}
    extra = {key: value for key, value in qa.extra.items() if key != "answer_hidden"}
    return json.dumps([row, _without_nulls(extra)], sort_keys=True)


def _without_nulls(value: Any) -> Any:
    """Parquet gives each row the fields of all others."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list | tuple) else value


def _same_video(before: str, now: str) -> bool:
    if before == now or os.path.basename(before) != os.path.basename(now):
        return before == now
    try:
        return not os.path.exists(before) or os.path.samefile(before, now)
    except OSError:
        return False


def failures(folder: Path) -> list[Failure]:
    """The questions that couldn't be played in the latest run."""
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
    """Remove the lists of questions that couldn't be played: they are tried again."""
    for stale in folder.glob(FAILURES):
        stale.unlink()


def journal(folder: Path, shard: int) -> AbstractContextManager[TextIO]:
    """A shard's journal, open for appending (see :func:`agentic_video.utils.journal.open_journal`)."""
    return files.open_journal(folder / f"episodes-{shard:03d}.jsonl", "evaluation")


def append(file: TextIO, record: Record) -> None:
    """Write a record; when this returns it is on disk."""
    write_record(file, record)
    files.settle(file)
