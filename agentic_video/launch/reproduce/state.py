"""State of a reproduction: each stage's record, its outputs, and the inputs and settings that made them."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from agentic_video.config.typed import dataclass_from
from agentic_video.converters.files import files_below, walk
from agentic_video.launch.reproduce.chain import ChainStage
from agentic_video.utils.content import checkpoint_digest, files_digest
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.workdir import write_whole
from agentic_video.video.container import VIDEO_SUFFIXES

FILE = "reproduce.json"
"""In the folder of a reproduction."""
ASIDE = "set-aside"
"""Folder of outputs that were made again."""
LOGS = "logs"
READ_BYTES = 64 << 20
"""Annotations up to this size are compared by content, larger ones by size and time."""
ANNOTATIONS = (".json", ".jsonl", ".parquet", ".csv", ".txt")
"""Suffixes of the files by which a folder of downloads is compared; its videos aren't."""


@dataclass(frozen=True)
class StageSettings:
    """Command, config and inputs that a stage's outputs depend on; older records lack ``named`` and ``base``."""

    command: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    videos: str = ""
    base: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StageRecord:
    """Record of a stage.

    Attributes:
        finished: Time in UTC at which it was complete; empty before.
        seconds: Duration of all its attempts.
    """

    settings: StageSettings = StageSettings()
    finished: str = ""
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    attempts: int = 0


@dataclass(frozen=True)
class _StateFile:
    stages: Mapping[str, StageRecord]


class State:
    """Records and outputs in the folder of a reproduction."""

    def __init__(self, folder: Path):
        self.folder = folder
        file = folder / FILE
        try:
            raw = json.loads(file.read_text(encoding="utf-8"))
            self.records = dict(dataclass_from(_StateFile, raw, "").stages)
        except FileNotFoundError:
            self.records = {}
        except (OSError, ValueError, RecursionError) as error:
            raise SetupError(
                f"{file}: is damaged ({one_line(error)}): repair it, or begin again with another --out", key=str(file)
            ) from None

    def write(self, name: str, record: StageRecord) -> None:
        """Keep a stage's record."""
        self.records[name] = record
        stages = {name: asdict(record) for name, record in self.records.items()}
        write_whole(self.folder / FILE, [json.dumps({"stages": stages}, indent=1) + "\n"])

    def home(self, stage: ChainStage) -> Path:
        """Folder of a stage."""
        return self.folder / stage.name

    def log(self, stage: ChainStage) -> Path:
        """Log of a stage."""
        return self.folder / LOGS / f"{stage.name}.log"

    def output(self, stage: ChainStage, name: str) -> Path | None:
        """One output of a stage; None where it is missing."""
        home, pattern = self.home(stage), stage.makes[name]
        if pattern == ".":
            return home if home.is_dir() else None
        return max(home.glob(pattern), default=None)

    def lacks(self, stage: ChainStage) -> list[str]:
        """Missing outputs of a stage."""
        return [name for name in stage.makes if self.output(stage, name) is None]

    def has_made(self, stage: ChainStage) -> bool:
        """Return True if a stage has made an output, or a journal with results.

        Where its folder alone is its output, anything in it counts.
        """
        home, named = self.home(stage), [name for name in stage.makes if name != "folder"]
        if not named:
            return home.is_dir() and any(home.iterdir())
        journals = (file for file in home.glob("*.jsonl") if not file.name.startswith("failures"))
        return any(self.output(stage, name) for name in named) or any(file.stat().st_size for file in journals)

    def set_aside(self, stage: ChainStage) -> Path | None:
        """Move a stage's outputs out of the way, so that it begins again; None where there are none."""
        home = self.home(stage)
        if not home.exists():
            return None
        number = 1
        while (target := self.folder / ASIDE / f"{stage.name}-{number}").exists():
            number += 1
        target.parent.mkdir(exist_ok=True)
        home.rename(target)
        return target


def fingerprint(path: Path) -> str:
    """Digest of an input: a file's content, a checkpoint's files, or the annotations anywhere below a folder."""
    if path.is_file():
        return files_digest([path])
    if not path.is_dir() or (path / "config.json").is_file():
        return checkpoint_digest(path)
    facts, left = [], READ_BYTES
    for file in files_below(path):
        if file.suffix in ANNOTATIONS and file.is_file():
            stat = file.stat()
            large = f"{stat.st_size} bytes of {stat.st_mtime_ns}"
            facts.append((file.relative_to(path).as_posix(), files_digest([file]) if stat.st_size <= left else large))
            left = max(0, left - stat.st_size)
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def video_names(folder: Path) -> str:
    """Digest of the paths of the videos below a folder, none of which is opened; empty without a folder."""
    if not folder.is_dir():
        return ""
    found = (place.relative_to(folder) / name for place, names in walk(folder) for name in names)
    videos = sorted(path.as_posix() for path in found if path.suffix.lower() in VIDEO_SUFFIXES)
    return hashlib.sha256(json.dumps(videos).encode()).hexdigest()[:16]


def difference(before: StageSettings, now: StageSettings) -> str:
    """The first difference of settings, in a few words; empty without one. Inputs that are missing now don't count."""
    if before.command != now.command:
        old, new = before.command.split(), now.command.split()
        changes = [f"without {word}" for word in _beyond(old, new)] + [f"with {word}" for word in _beyond(new, old)]
        return f"its command changed (now {', '.join(changes) or 'in another order'})"
    for name, value in now.inputs.items():
        if value and before.inputs.get(name) != value:
            return f"its input {name} changed"
    for name, value in now.named.items():
        if before.named.get(name, value) != value:
            return f"its setting {name} changed ({_short(before.named[name])}, now {_short(value)})"
    if before.base and now.base and before.base != now.base:
        return "the files of its base model changed"
    for key in sorted({*before.config, *now.config}):
        if before.config.get(key) != now.config.get(key):
            return f"its config changed ({key}: {_short(before.config.get(key))}, now {_short(now.config.get(key))})"
    return ""


def _beyond(words: Iterable[str], others: Iterable[str]) -> list[str]:
    known = list(others)
    return [word for word in words if word not in known]


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
