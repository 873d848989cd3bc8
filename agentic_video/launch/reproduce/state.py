"""What has been made of a reproduction: each stage's record, its outputs, and on what they depended."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentic_video.config.typed import dataclass_from
from agentic_video.converters.files import files_below, walk
from agentic_video.launch.reproduce.chain import Stage
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.journal import write_whole
from agentic_video.video.container import VIDEO_SUFFIXES

FILE = "reproduce.json"
"""In the folder of a reproduction."""
ASIDE = "set-aside"
"""Folder of what was made again."""
LOGS = "logs"
READ_BYTES = 64 << 20
"""Files up to this size are compared by what they hold, larger ones by size and time."""
ANNOTATIONS = (".json", ".jsonl", ".parquet", ".csv", ".txt")
"""Endings of the files by which a folder of downloads is compared; its videos aren't looked at."""


@dataclass(frozen=True)
class Record:
    """What is noted of a stage.

    Attributes:
        settings: On what its outputs depend, as plain data: its command, its config, its inputs.
        finished: When it was whole, in UTC; empty as long as it isn't.
        seconds: What all its attempts took.
        attempts: How often it was started.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    finished: str = ""
    seconds: float = 0.0
    attempts: int = 0

    def __post_init__(self) -> None:
        for part in ("inputs", "named", "config"):
            if not isinstance(self.settings.get(part, {}), Mapping):
                raise ValueError(f"settings.{part}: expected keys and values, got {self.settings[part]!r}")
        if not 0 <= self.seconds < math.inf:
            raise ValueError(f"seconds: expected a time, got {self.seconds}")


class State:
    """The records of a reproduction, in one file of its folder.

    Args:
        folder: Of the reproduction.

    Raises:
        SetupError: The file can't be read.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.records: dict[str, Record] = {}
        file = folder / FILE
        try:
            raw = json.loads(file.read_text(encoding="utf-8"))
            self.records = {str(name): dataclass_from(Record, one, name) for name, one in raw["stages"].items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SetupError(
                f"{file}: is damaged ({one_line(error)}): put it right, or begin anew with another --out"
            ) from None

    def write(self, name: str, record: Record) -> None:
        """Note a stage's record, for good."""
        self.records[name] = record
        stages = {known: asdict(one) for known, one in self.records.items()}
        write_whole(self.folder / FILE, [json.dumps({"stages": stages}, indent=1) + "\n"])

    def home(self, stage: Stage) -> Path:
        """A stage's folder."""
        return self.folder / stage.name

    def log(self, stage: Stage) -> Path:
        """A stage's log."""
        return self.folder / LOGS / f"{stage.name}.log"

    def output(self, stage: Stage, name: str) -> Path | None:
        """One output of a stage; None where it isn't there."""
        home, pattern = self.home(stage), stage.makes[name]
        if pattern == ".":
            return home if home.is_dir() else None
        return max(home.glob(pattern), default=None)

    def lacks(self, stage: Stage) -> list[str]:
        """The outputs of a stage that aren't there."""
        return [name for name in stage.makes if self.output(stage, name) is None]

    def has_made(self, stage: Stage) -> bool:
        """Whether a stage has made anything worth keeping: one of its outputs, or results that a job has written down.

        Where its folder alone is its output, that is anything in it.
        """
        home, named = self.home(stage), [name for name in stage.makes if name != "folder"]
        if not named:
            return home.is_dir() and any(home.iterdir())
        journals = (file for file in home.glob("*.jsonl") if not file.name.startswith("failures"))
        return any(self.output(stage, name) for name in named) or any(file.stat().st_size for file in journals)

    def set_aside(self, stage: Stage) -> Path | None:
        """Move what a stage has made out of the way, so that it begins anew; None where there is nothing."""
        home = self.home(stage)
        if not home.exists():
            return None
        number = 1
        while (target := self.folder / ASIDE / f"{stage.name}-{number}").exists():
            number += 1
        target.parent.mkdir(exist_ok=True)
        home.rename(target)
        return target


def identity(path: Path) -> str:
    """What an input is, so that a change is noticed: a file's content, a checkpoint's or a folder's files.

    Of a checkpoint the files in its folder count. Of another folder it is those that may be annotations, wherever below
    it converters find them.
    """
    if path.is_file():
        return _content(path, READ_BYTES)
    if not path.is_dir():
        return ""
    if (path / "config.json").is_file():
        files = sorted(one for one in path.iterdir() if one.is_file())
        facts: list[Any] = [(one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in files]
    else:
        facts, left = [], READ_BYTES
        for one in files_below(path):
            if one.suffix not in ANNOTATIONS or not one.is_file():
                continue
            facts.append((one.relative_to(path).as_posix(), _content(one, left)))
            left = max(0, left - one.stat().st_size)
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def video_names(folder: Path) -> str:
    """Which videos are below a folder, by their paths alone: not one of them is opened. Empty without a folder."""
    if not folder.is_dir():
        return ""
    found = (place.relative_to(folder) / name for place, names in walk(folder) for name in names)
    videos = sorted(path.as_posix() for path in found if path.suffix.lower() in VIDEO_SUFFIXES)
    return hashlib.sha256(json.dumps(videos).encode()).hexdigest()[:16]


def _content(file: Path, most: int) -> str:
    """What a file holds, or, where that is more than so many bytes, its size and time."""
    facts = file.stat()
    if facts.st_size > most:
        return f"{facts.st_size} bytes of {facts.st_mtime_ns}"
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How settings differ, in a few words; empty where they don't. An input that isn't there now isn't compared.

    Args:
        before: Those that a stage was made with; one of an earlier version doesn't know ``named`` and ``base``, which
            are then not compared.
        now: Those that it would be made with.
    """
    if before.get("command") != now["command"]:
        was, shall = str(before.get("command", "")).split(), now["command"].split()
        changes = [f"without {word}" for word in _beyond(was, shall)] + [f"with {word}" for word in _beyond(shall, was)]
        return f"its command changed (now {', '.join(changes) or 'in another order'})"
    old, new = before.get("inputs", {}), now["inputs"]
    for name in new:
        if new[name] and old.get(name) != new[name]:
            return f"its input {name} changed"
    named = before.get("named", {})
    for name, value in now.get("named", {}).items():
        if named.get(name, value) != value:
            return f"its setting {name} changed ({_short(named[name])}, now {_short(value)})"
    if before.get("base") and now.get("base") and before["base"] != now["base"]:
        return "the files of its base model changed"
    config, other = before.get("config", {}), now["config"]
    for key in sorted({*config, *other}):
        if config.get(key) != other.get(key):
            return f"its config changed ({key}: {_short(config.get(key))}, now {_short(other.get(key))})"
    return ""


def _beyond(words: Iterable[str], others: Iterable[str]) -> list[str]:
    known = list(others)
    return [word for word in words if word not in known]


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
