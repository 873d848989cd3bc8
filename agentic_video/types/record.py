"""Trajectory records: finished episodes as JSON lines, for SFT, KTO, filters and viewers.

A file holds one record a line, UTF-8:

=====================  =======  ==================================================================================
field                  type     meaning
=====================  =======  ==================================================================================
``version``            int      of this format: 2 (records of version 1 are read too)
``video_qa``           object   the row that was asked (``agentic_video.types.row``); a relative ``video`` starts
                                at the file's own folder
``trajectory``         object   the episode (:meth:`~agentic_video.types.trajectory.Trajectory.to_dict`); a frame is
                                a reference ``{"index", "time", "width", "height"}`` without pixels (a region of a
                                frame with its ``"crop"``; a picture that a tool made with its key, ``"made"``, and as
                                a PNG file in base64, ``"picture"``), and a clip ``{"frames": [..]}`` of two frames or
                                more
``reward_extra_info``  object   numbers by name: ``reward``, ``acc``, ``format``, the reward's terms; may be empty
``provenance``         object   who made it and with what, free in form; may be empty
=====================  =======  ==================================================================================

Loading checks every field. ``docs/data.md`` describes the parts of a trajectory.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from pydantic import BaseModel, ConfigDict, ValidationError

from agentic_video.types.jsonl import json_line
from agentic_video.types.plain import as_json
from agentic_video.types.row import RowError, VideoQA, located
from agentic_video.types.schema import Int, Number, first_problem
from agentic_video.types.text import printable, short
from agentic_video.types.trajectory import Trajectory

VERSION = 2
"""Raise it when a reader of the older format could misread a record."""


class _RecordFields(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Int
    video_qa: dict[str, Any]
    trajectory: Trajectory
    reward_extra_info: dict[str, Number] = {}
    provenance: dict[str, Any] = {}


class RecordError(ValueError):
    """A record that can't be used; the message names the file, the line and the field."""


class MisplacedRowError(RecordError):
    """A row, which is a question, where a record was expected."""


def rows_instead(files: str, read: str) -> str:
    """Message about files of rows where ``read``, e.g. "sft reads records (finished episodes)"."""
    return f"{files}: these are rows (questions), but {read}, which `agentic-video distill` makes of rows"


@dataclass(frozen=True)
class Record:
    """One finished episode.

    Attributes:
        rewards: Rewards by name; empty where nothing was scored.
        provenance: Its author and settings.
    """

    qa: VideoQA
    trajectory: Trajectory
    rewards: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Fields of a line."""
        return {
            "version": VERSION,
            "video_qa": self.qa.to_row(),
            "trajectory": self.trajectory.to_dict(),
            "reward_extra_info": {name: float(value) for name, value in self.rewards.items()},
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, raw: Any, where: str = "record") -> "Record":
        """Check the fields of a line; ``where`` names it in the RecordError about a bad one."""
        if isinstance(raw, Mapping) and "question" in raw and not is_record(raw):
            raise MisplacedRowError(f"{where}: is a row (a question), not a record (a finished episode)")
        if isinstance(raw, Mapping) and "version" in raw and raw["version"] not in (1, VERSION):
            raise RecordError(f"{where}: field 'version' is {raw['version']!r}, this program reads version {VERSION}")
        try:
            fields = _RecordFields.model_validate(raw)
        except ValidationError as error:
            key, problem = first_problem(error)
            raise RecordError(f"{where}: {f'field {key!r}' if key else 'a record'} {problem}") from None
        try:
            qa = VideoQA.from_row(fields.video_qa, f"{where}: video_qa")
        except (RowError, TypeError) as error:
            raise RecordError(str(error)) from error
        trajectory = fields.trajectory
        if trajectory.qa_id != qa.id:
            raise RecordError(f"{where}: field 'trajectory.qa_id' is {trajectory.qa_id!r}, but 'video_qa.id' {qa.id!r}")
        return cls(qa, trajectory, fields.reward_extra_info, fields.provenance)


def is_record(raw: Any) -> bool:
    """Return True for a line that is meant to be a record; it isn't checked."""
    return isinstance(raw, Mapping) and ("video_qa" in raw or "trajectory" in raw)


def write_record(file: TextIO, record: Record) -> None:
    """Write one line to a UTF-8 text file; after a RecordError nothing of it was written."""
    try:
        line = _line(record.to_dict())
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"the episode of {short(record.qa.id)} can't be written as a record: {error}") from error
    file.write(line)


def _line(fields: dict[str, Any]) -> str:
    try:
        return json_line(fields)
    except TypeError:  # numpy's values, or an error that names the place
        return json_line(as_json(fields, "record"))


@dataclass(frozen=True, slots=True)
class RecordLine:
    """An unread record: a compressed line, a tenth of its size, of which objects take several times as much."""

    path: Path
    number: int
    packed: bytes

    def read(self) -> Record:
        """Read the record; a bad line raises a RecordError."""
        return _record(zlib.decompress(self.packed), self.path, self.number)


def record_lines(paths: Iterable[str | Path]) -> list[RecordLine]:
    """Load the lines of several files, unread, for sets whose objects don't fit into memory."""
    found: list[RecordLine] = []
    for path in map(Path, paths):
        with _opened(path) as file:
            lines = enumerate(file, start=1)
            found += (RecordLine(path, number, zlib.compress(line, 1)) for number, line in lines if line.strip())
    return found


def each_record(
    paths: Iterable[str | Path], wanted: Callable[[bytes], object] = bytes.strip
) -> Iterator[Record | RecordError]:
    """Yield the records of several files; a bad line yields its error. ``wanted`` selects lines."""
    for path in map(Path, paths):
        with _opened(path) as file:
            for number, line in enumerate(file, start=1):
                if not wanted(line):
                    continue
                try:
                    record = _record(line, path, number)
                except RecordError as error:
                    yield error
                else:
                    yield record


def read_records(path: str | Path) -> Iterator[Record]:
    """Yield the records of a file; the first bad line raises its RecordError (:func:`each_record` continues)."""
    for record in each_record([path]):
        if isinstance(record, RecordError):
            raise record
        yield record


def load_records(paths: Iterable[str | Path]) -> tuple[list[Record], list[str]]:
    """Return the good records of several files in order, and one message for each bad line."""
    records: list[Record] = []
    problems: list[str] = []
    for record in each_record(paths):
        if isinstance(record, RecordError):
            problems.append(printable(str(record)))
        else:
            records.append(record)
    return records, problems


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise RecordError(f"{path}: can't be read: {error.strerror}; expected json lines of records") from error


def _record(line: bytes, path: Path, number: int) -> Record:
    where = f"{path} line {number}"
    try:
        raw = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: not a json object in UTF-8: {error}") from error
    record = Record.from_dict(raw, where)
    return replace(record, qa=located(record.qa, path.parent))
