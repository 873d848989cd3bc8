"""Trajectory records: finished episodes as json lines, for whatever reads episodes later (SFT, KTO, filters, viewers).

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
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from agentic_video.types.frame import MAX_PICTURE_BYTES
from agentic_video.types.jsonl import json_line
from agentic_video.types.plain import plain
from agentic_video.types.row import RowError, VideoQA, located
from agentic_video.types.text import printable, short
from agentic_video.types.trajectory import EndReason, Trajectory

VERSION = 2
"""Raise it when a reader of the older format could misread a record."""

_RECORD = {"version": int, "video_qa": dict, "trajectory": dict}
_RECORD_OPTIONAL = {"reward_extra_info": dict, "provenance": dict}
_TRAJECTORY = {"qa_id": str, "system": str, "opening": list, "turns": list, "end": str}
_TRAJECTORY_OPTIONAL = {
    "error": str,
    "rollout_index": int,
    "num_tokens": int,
    "forced": bool,
    "asides": list,
    "notes": dict,
}
_MESSAGE = {"role": str, "parts": list}
_TURN = {"text": str, "action": dict, "num_tokens": int, "observation": list}
_TURN_OPTIONAL = {
    "finished": bool,
    "legal_calls": int,
    "illegal_calls": int,
    "token_ids": list,
    "loss_mask": bool,
    "asides": list,
}
_ASIDE = {"messages": list, "text": str, "num_tokens": int}
_ASIDE_OPTIONAL = {"prompt_tokens": int, "finished": bool, "prefix": str, "stop": list, "token_ids": list}
_FRAME = {"index": int, "time": float, "width": int, "height": int}
_CROP = {"box": list, "frame_width": int, "frame_height": int}
_CLIP = {"frames": list}
_ACTIONS: dict[str, dict[str, type]] = {"answer": {"text": str}, "illegal": {"reason": str}, "calls": {"calls": list}}
_CALL = {"name": str, "arguments": dict}
_KINDS = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


class RecordError(ValueError):
    """A record that can't be used; the message names the file, the line and the field."""


class RowInstead(RecordError):
    """A row, which is a question, where a record was to be."""


def rows_instead(files: str, read: str) -> str:
    """The message about files of rows where records were to be.

    Args:
        files: Their names.
        read: What is read there, e.g. "sft reads records (finished episodes)".
    """
    return f"{files}: these are rows (questions), but {read}, which `agentic-video distill` makes of rows"


@dataclass(frozen=True)
class Record:
    """One finished episode.

    Attributes:
        qa: The question.
        trajectory: What happened.
        rewards: What it earned, by name; empty where nothing was scored.
        provenance: Who made it and with what.
    """

    qa: VideoQA
    trajectory: Trajectory
    rewards: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The fields of a line."""
        return {
            "version": VERSION,
            "video_qa": self.qa.to_row(),
            "trajectory": self.trajectory.to_dict(),
            "reward_extra_info": {name: float(value) for name, value in self.rewards.items()},
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, raw: Any, where: str = "record") -> "Record":
        """Check the fields of a line and make a record of them.

        Args:
            where: How error messages name it, e.g. ``episodes.jsonl line 12``.

        Raises:
            RecordError: A field is missing, unknown or of the wrong kind.
        """
        raw = _upgraded(raw)
        if isinstance(raw, Mapping) and "question" in raw and not is_record(raw):
            raise RowInstead(f"{where}: is a row (a question), not a record (a finished episode)")
        if isinstance(raw, Mapping) and "version" in raw and raw["version"] != VERSION:
            raise RecordError(f"{where}: field 'version' is {raw['version']!r}, this program reads version {VERSION}")
        _check(raw, _RECORD, _RECORD_OPTIONAL, where, "")
        try:
            qa = VideoQA.from_row(raw["video_qa"], f"{where}: video_qa")
        except (RowError, TypeError) as error:
            raise RecordError(str(error)) from error
        _check_trajectory(raw["trajectory"], where)
        trajectory = Trajectory.from_dict(raw["trajectory"])
        if trajectory.qa_id != qa.id:
            raise RecordError(f"{where}: field 'trajectory.qa_id' is {trajectory.qa_id!r}, but 'video_qa.id' {qa.id!r}")
        rewards = raw.get("reward_extra_info", {})
        _check(rewards, dict.fromkeys(rewards, float), {}, where, "reward_extra_info")
        return cls(qa, trajectory, {name: float(value) for name, value in rewards.items()}, raw.get("provenance", {}))


def is_record(raw: Any) -> bool:
    """Whether what a line holds is meant to be a record; it isn't checked."""
    return isinstance(raw, Mapping) and ("video_qa" in raw or "trajectory" in raw)


def _upgraded(raw: Any) -> Any:
    """A record of version 1 as one of this version: what is ``loss_mask`` now was ``taught`` then."""
    if not isinstance(raw, Mapping) or raw.get("version") != 1:
        return raw
    trajectory = raw.get("trajectory")
    turns = trajectory.get("turns") if isinstance(trajectory, Mapping) else None
    if not isinstance(trajectory, Mapping) or not isinstance(turns, list):
        return {**raw, "version": VERSION}
    renamed = [
        {{"taught": "loss_mask"}.get(key, key): value for key, value in turn.items()}
        if isinstance(turn, Mapping)
        else turn
        for turn in turns
    ]
    return {**raw, "version": VERSION, "trajectory": {**trajectory, "turns": renamed}}


def write_record(file: TextIO, record: Record) -> None:
    """Write one line to a UTF-8 text file.

    Raises:
        RecordError: It holds what no file of records can; nothing of it was written.
    """
    try:
        line = _line(record.to_dict())
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"the episode of {short(record.qa.id)} can't be written as a record: {error}") from error
    file.write(line)


def _line(fields: dict[str, Any]) -> str:
    try:
        return json_line(fields)
    except TypeError:  # of numpy, or it is said what it is and where
        return json_line(plain(fields, "record"))


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A record that hasn't been read yet: a tenth of its line's size, of which its objects take several times as much.

    Attributes:
        path: The file that it is from.
        number: Of the line, from 1.
        packed: The line, compressed.
    """

    path: Path
    number: int
    packed: bytes

    def read(self) -> Record:
        """The record.

        Raises:
            RecordError: The line is bad.
        """
        return _record(zlib.decompress(self.packed), self.path, self.number)


def record_lines(paths: Iterable[str | Path]) -> list[RecordLine]:
    """The records of several files, unread, for sets whose objects don't fit into memory.

    Raises:
        RecordError: A file can't be read at all.
    """
    found: list[RecordLine] = []
    for path in map(Path, paths):
        with _opened(path) as file:
            lines = enumerate(file, start=1)
            found += (RecordLine(path, number, zlib.compress(line, 1)) for number, line in lines if line.strip())
    return found


def each_record(
    paths: Iterable[str | Path], wanted: Callable[[bytes], object] = bytes.strip
) -> Iterator[Record | RecordError]:
    """The records of several files, one after the other, and in place of each bad line what is wrong with it.

    Args:
        paths: The files.
        wanted: Whether a line is read at all; by default, where there is anything in it.

    Raises:
        RecordError: A file can't be read at all.
    """
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
    """The records of a file, one after the other.

    Raises:
        RecordError: The file can't be read, or a line is bad (the first bad one ends the iteration;
            :func:`each_record` goes on after it).
    """
    for record in each_record([path]):
        if isinstance(record, RecordError):
            raise record
        yield record


def load_records(paths: Iterable[str | Path]) -> tuple[list[Record], list[str]]:
    """The records of several files.

    Returns:
        The good records in order, and one message for each bad line.

    Raises:
        RecordError: A file can't be read at all.
    """
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


def _check(raw: Any, required: Mapping[str, type], optional: Mapping[str, type], where: str, name: str) -> None:
    """Look whether an object has the fields that it must have, no others, and each of its kind."""
    if not isinstance(raw, Mapping):
        raise RecordError(f"{where}: {_field(name)} must be an object, got {short(raw)}")
    prefix = f"{name}." if name else ""
    known = {**required, **optional}
    for key in raw:
        if key not in known:
            raise RecordError(f"{where}: field '{prefix}{key}' is unknown; known are {sorted(known)}")
    for key, kind in known.items():
        if key not in raw:
            if key in required:
                raise RecordError(f"{where}: field '{prefix}{key}' is missing")
            continue
        value = raw[key]
        fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if not fits or (kind is not bool and isinstance(value, bool)) or _is_huge(value):
            raise RecordError(f"{where}: field '{prefix}{key}' must be {_KINDS[kind]}, got {short(value)}")


def _check_trajectory(raw: Any, where: str) -> None:
    _check(raw, _TRAJECTORY, _TRAJECTORY_OPTIONAL, where, "trajectory")
    ends = [end.value for end in EndReason]
    if raw["end"] not in ends:
        raise RecordError(f"{where}: field 'trajectory.end' must be one of {ends}, got {short(raw['end'])}")
    _check_messages(raw["opening"], where, "trajectory.opening")
    for number, turn in enumerate(raw["turns"]):
        name = f"trajectory.turns[{number}]"
        _check(turn, _TURN, _TURN_OPTIONAL, where, name)
        _check_action(turn["action"], where, f"{name}.action")
        _check_parts(turn["observation"], where, f"{name}.observation")
        _check_ids(turn, where, name)
        _check_asides(turn, where, name)
    _check_asides(raw, where, "trajectory")


def _check_messages(messages: Sequence[Any], where: str, name: str) -> None:
    for number, message in enumerate(messages):
        one = f"{name}[{number}]"
        _check(message, _MESSAGE, {}, where, one)
        if message["role"] not in ("system", "user"):
            raise RecordError(f"{where}: field '{one}.role' must be system or user, got {short(message['role'])}")
        _check_parts(message["parts"], where, f"{one}.parts")


def _check_ids(said: Mapping[str, Any], where: str, name: str) -> None:
    for token in said.get("token_ids", ()):
        if not isinstance(token, int) or isinstance(token, bool) or token < 0 or _is_huge(token):
            raise RecordError(f"{where}: field '{name}.token_ids' must hold token ids, got {short(token)}")


def _check_asides(owner: Mapping[str, Any], where: str, name: str) -> None:
    for number, aside in enumerate(owner.get("asides", ())):
        one = f"{name}.asides[{number}]"
        _check(aside, _ASIDE, _ASIDE_OPTIONAL, where, one)
        _check_messages(aside["messages"], where, f"{one}.messages")
        _check_ids(aside, where, one)
        for stop in aside.get("stop", ()):
            if not isinstance(stop, str):
                raise RecordError(f"{where}: field '{one}.stop' must hold texts, got {short(stop)}")


def _check_parts(parts: Sequence[Any], where: str, name: str) -> None:
    for number, part in enumerate(parts):
        if isinstance(part, str):
            continue
        if isinstance(part, Mapping) and "frames" in part:
            _check_clip(part, where, f"{name}[{number}]")
        else:
            _check_frame(part, where, f"{name}[{number}]")


def _check_frame(raw: Any, where: str, name: str) -> None:
    _check(raw, _FRAME, {"crop": dict, "made": str, "picture": str}, where, name)
    if "picture" in raw:
        _check_picture(raw, where, name)
    if raw["index"] < 0 or raw["width"] <= 0 or raw["height"] <= 0:
        raise RecordError(f"{where}: field '{name}' is no frame: {dict(raw)}")
    if "crop" in raw:
        _check_crop(raw["crop"], where, f"{name}.crop")


def _check_picture(raw: Mapping[str, Any], where: str, name: str) -> None:
    try:
        size = len(b64decode(raw["picture"], validate=True))
    except ValueError:
        size = 0
    if not raw.get("made") or not 0 < size <= MAX_PICTURE_BYTES:
        raise RecordError(
            f"{where}: field '{name}.picture' must be a PNG file of at most {MAX_PICTURE_BYTES} bytes in base64, with "
            "its key in 'made'"
        )


def _check_crop(raw: Mapping[str, Any], where: str, name: str) -> None:
    _check(raw, _CROP, {}, where, name)
    box = raw["box"]
    if len(box) != 4 or not all(isinstance(edge, int) and not isinstance(edge, bool) for edge in box):
        raise RecordError(f"{where}: field '{name}.box' must hold four whole numbers, got {short(box)}")
    left, top, right, bottom = box
    if not (0 <= left < right <= raw["frame_width"] and 0 <= top < bottom <= raw["frame_height"]):
        raise RecordError(f"{where}: field '{name}' is no region of a frame: {dict(raw)}")


def _check_clip(raw: Any, where: str, name: str) -> None:
    _check(raw, _CLIP, {}, where, name)
    for number, frame in enumerate(raw["frames"]):
        _check_frame(frame, where, f"{name}.frames[{number}]")
    sizes = {(frame["width"], frame["height"]) for frame in raw["frames"]}
    times = [frame["time"] for frame in raw["frames"]]
    if len(times) < 2 or len(sizes) > 1 or times != sorted(times):
        raise RecordError(f"{where}: field '{name}' is no clip: at least 2 frames of one size in order of time")


def _check_action(raw: Mapping[str, Any], where: str, name: str) -> None:
    kind = raw.get("kind")
    if not isinstance(kind, str) or kind not in _ACTIONS:
        raise RecordError(f"{where}: field '{name}.kind' must be one of {sorted(_ACTIONS)}, got {short(kind)}")
    _check(raw, {"kind": str, **_ACTIONS[kind]}, {}, where, name)
    for number, call in enumerate(raw.get("calls", ())):
        _check(call, _CALL, {}, where, f"{name}.calls[{number}]")


def _is_huge(value: Any) -> bool:
    """Whether a number is none that programs count with."""
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _field(name: str) -> str:
    return f"field '{name}'" if name else "a record"
