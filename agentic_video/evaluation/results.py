"""What an evaluation leaves in its folder: journals of episodes, questions that couldn't be played."""

import json
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
JOURNALS = "episodes-*.jsonl"
"""Finished episodes, a file for each shard."""
FAILURES = "failures-*.jsonl"
"""Questions that couldn't be played in the latest run, likewise."""

Key = tuple[str, str]
"""A question across data files: its data source and its id."""


@dataclass(frozen=True)
class Failure:
    """A question that couldn't be played.

    Attributes:
        key: Which one.
        error: Kind of the error and its message.
    """

    key: Key
    error: str


def key_of(qa: VideoQA) -> Key:
    """What names a question."""
    return qa.data_source, qa.id


def distinct(rows: Sequence[VideoQA]) -> tuple[list[VideoQA], list[str]]:
    """Rows without those whose data source and id were there before, and a message for each, with both places."""
    kept: dict[Key, VideoQA] = {}
    problems = []
    for qa in rows:
        before = kept.setdefault(key_of(qa), qa)
        if before is not qa:
            problems.append(
                f"{qa.where or 'row'}: id {qa.id!r} of data source {qa.data_source!r} is that of "
                f"{before.where or 'an earlier row'} too; ids must be unique"
            )
    return list(kept.values()), problems


def claim_folder(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make the folder of an evaluation, or go on in one of the same settings.

    Raises:
        SetupError: The folder holds an evaluation with other settings; the message names the first difference.
    """
    files.claim_folder(folder, settings, SETTINGS_FILE, "an evaluation")


def finished(folder: Path) -> tuple[list[Record], list[str]]:
    """The episodes that a folder's journals hold, each question once, and a message for each line that is no record.

    A line that a kill cut short is such a line; its question is played again.
    """
    records, problems = load_records(sorted(folder.glob(JOURNALS)))
    kept: dict[Key, Record] = {}
    for record in records:
        kept.setdefault(key_of(record.qa), record)
    return list(kept.values()), problems


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
    """A shard's journal, open for appending (see :func:`agentic_video.utils.journal.open_journal`).

    Raises:
        SetupError: Another process has it open.
    """
    return files.open_journal(folder / f"episodes-{shard:03d}.jsonl", "evaluation")


def append(file: TextIO, record: Record) -> None:
    """Write a record; when this returns it is on disk."""
    write_record(file, record)
    files.settle(file)
