"""Released checkpoints by name: which model, whose episodes, under which protocol, and what was published for it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from agentic_video.evaluation.published import Published, published_for
from agentic_video.planning.shapes import shape_of
from agentic_video.utils.choices import did_you_mean
from agentic_video.utils.errors import SetupError

ALL = "all"
"""Stands for every checkpoint of the table."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint and how it is evaluated."""

    name: str  # as `--checkpoint` takes it; folders are called by it
    model: str  # its name on the hub, or its folder
    recipe: str  # name or folder of the recipe whose episodes it plays
    base: str = ""  # the model that it was trained from, by which its size is known; empty where that doesn't matter
    source: str = ""  # where it is named
    paper: str = ""  # whose published numbers are its own, as `published.yaml` has it
    published_as: str = ""  # the model's name there
    # `temperature` and `top_p` of its own evaluation; the recipe's where missing
    sampling: Mapping[str, float] = field(default_factory=dict)
    # config keys and values of its own evaluation
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    note: str = ""  # what to mind

    @property
    def overrides(self) -> tuple[str, ...]:
        """Its settings as Hydra overrides."""
        return tuple(f"{key}={_hydra(value)}" for key, value in self.settings.items())

    @property
    def weight_bytes(self) -> int | None:
        """Of its weights in bfloat16; None where its base's shape isn't known."""
        try:
            return 2 * shape_of(self.base).parameters if self.base else None
        except SetupError:
            return None

    def published(self, benchmark: str) -> Published | None:
        """What was published for it on a benchmark; None where nothing was."""
        rows = [
            row
            for row in published_for(benchmark)
            if row.paper == self.paper and row.model == self.published_as and row.calls is None
        ]
        return rows[0] if rows else None


def _hydra(value: str | int | float | bool) -> str:
    """A value as Hydra's grammar reads it back."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # of backslashes only those before a quotation mark mean anything there
        escaped = re.sub(r"(\\*)('|\Z)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value)
        return f"'{escaped}'"
    return repr(value)


def checkpoints(more: Sequence[Path] = ()) -> dict[str, Checkpoint]:
    """The table's checkpoints by name."""
    packaged = files("agentic_video.evaluation").joinpath("checkpoints.yaml").read_text(encoding="utf-8")
    found = {one.name: one for one in _read(packaged, "checkpoints.yaml")}
    for path in more:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"--checkpoints {path}: can't be read: {error}") from error
        found |= {one.name: one for one in _read(text, f"--checkpoints {path}")}
    return found


def _read(text: str, where: str) -> list[Checkpoint]:
    try:
        entries = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise SetupError(f"{where}: not yaml: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(entries, list) or not entries:
        raise SetupError(f"{where}: must hold a list of checkpoints, each with name, model and recipe")
    found = [_entry(entry, f"{where}: entry {number}") for number, entry in enumerate(entries)]
    names = [one.name for one in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SetupError(f"{where}: {twice} is there twice")
    return found


def _entry(raw: Any, where: str) -> Checkpoint:
    known = {one.name for one in fields(Checkpoint)}
    if not isinstance(raw, Mapping):
        raise SetupError(f"{where}: must be an object with name, model and recipe")
    if unknown := [str(key) for key in raw if key not in known]:
        raise SetupError(f"{where}: no field {unknown[0]}; there are {', '.join(sorted(known))}")
    for name in ("name", "model", "recipe"):
        if not isinstance(raw.get(name), str) or not raw[name]:
            raise SetupError(f"{where}: {name} must be a text")
    if not _NAME.fullmatch(raw["name"]) or raw["name"] == ALL:
        raise SetupError(f"{where}: name must be of small letters, digits, dots and dashes, got {raw['name']!r}")
    sampling, settings = raw.get("sampling") or {}, raw.get("settings") or {}
    if not isinstance(sampling, Mapping) or any(
        key not in ("temperature", "top_p") or isinstance(value, bool) or not isinstance(value, int | float)
        for key, value in sampling.items()
    ):
        raise SetupError(f"{where}: sampling takes temperature and top_p, each a number")
    if not isinstance(settings, Mapping) or any(
        not isinstance(key, str) or not isinstance(value, str | int | float | bool) for key, value in settings.items()
    ):
        raise SetupError(f"{where}: settings takes config keys, each with a text, a number, true or false")
    texts = {name: str(raw.get(name) or "") for name in ("base", "source", "paper", "published_as", "note")}
    numbers = {key: float(value) for key, value in sampling.items()}
    return Checkpoint(raw["name"], raw["model"], raw["recipe"], sampling=numbers, settings=dict(settings), **texts)


def named(text: str, known: Mapping[str, Checkpoint]) -> list[Checkpoint]:
    """The checkpoints that ``--checkpoint`` names: one, several with commas in between, or ``all``."""
    if text == ALL:
        return list(known.values())
    found = []
    for name in dict.fromkeys(part.strip() for part in text.split(",")):
        if name not in known:
            meant = did_you_mean(name, known)
            raise SetupError(f"--checkpoint {name}: no such checkpoint; {meant}there are {', '.join(known)}, and {ALL}")
        found.append(known[name])
    return found
