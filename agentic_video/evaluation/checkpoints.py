"""Released checkpoints by name: model, recipe, protocol of the evaluation, and published numbers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import yaml

from agentic_video.config.typed import ConfigError, dataclass_from
from agentic_video.evaluation.published import PublishedScore, published_for
from agentic_video.planning.shapes import shape_of
from agentic_video.utils.errors import SetupError, did_you_mean, one_line

ALL = "all"
"""Stands for every checkpoint of the table."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint and the protocol of its evaluation."""

    name: str  # for --checkpoint, and of folders
    model: str  # name on the hub, or folder
    recipe: str  # name or folder of the recipe whose episodes it plays
    base: str = ""  # model that it was trained from, by which its size is known
    source: str = ""  # where it is named
    paper: str = ""  # its paper in published.yaml
    published_as: str = ""  # the model's name in that paper
    # of its own evaluation; the recipe's where missing
    sampling: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)  # config of its own evaluation
    note: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name == ALL:
            raise ValueError(f"name: must be of small letters, digits, dots and dashes, got {self.name!r}")
        if not set(self.sampling) <= {"temperature", "top_p"}:
            raise ValueError("sampling: takes temperature and top_p")
        if not self.model or not self.recipe:
            raise ValueError("model and recipe must not be empty")

    @property
    def overrides(self) -> tuple[str, ...]:
        """The settings as Hydra overrides."""
        return tuple(f"{key}={_hydra(value)}" for key, value in self.settings.items())

    @property
    def weight_bytes(self) -> int | None:
        """Size of the weights in bfloat16; None for an unknown base."""
        try:
            return 2 * shape_of(self.base).parameters if self.base else None
        except SetupError:
            return None

    def published(self, benchmark: str) -> PublishedScore | None:
        """The published number on a benchmark."""
        rows = (
            row
            for row in published_for(benchmark)
            if row.paper == self.paper and row.model == self.published_as and row.calls is None
        )
        return next(rows, None)


def _hydra(value: str | int | float | bool) -> str:
    """A value in Hydra's grammar."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # backslashes mean something only before a quotation mark
        escaped = re.sub(r"(\\*)('|\Z)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value)
        return f"'{escaped}'"
    return repr(value)


def checkpoints(more: Sequence[Path] = ()) -> dict[str, Checkpoint]:
    """The table's checkpoints by name; entries of further files in its form replace those of the same name."""
    packaged = files("agentic_video.evaluation").joinpath("checkpoints.yaml").read_text(encoding="utf-8")
    table = _read(packaged, "checkpoints.yaml")
    for path in more:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"--checkpoints {path}: can't be read: {error}", key="--checkpoints") from error
        table |= _read(text, f"--checkpoints {path}")
    return table


def _read(text: str, place: str) -> dict[str, Checkpoint]:
    try:
        entries = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{place}: not yaml: {one_line(error)[:200]}", key=place) from error
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{place}: must hold a list of checkpoints, each with name, model and recipe", key=place)
    table: dict[str, Checkpoint] = {}
    for number, entry in enumerate(entries):
        checkpoint = dataclass_from(Checkpoint, entry or {}, f"entry {number}", f"{place}: ")
        if checkpoint.name in table:
            raise ConfigError(f"{place}: {checkpoint.name} is there twice", key=checkpoint.name)
        table[checkpoint.name] = checkpoint
    return table


def named(text: str, known: Mapping[str, Checkpoint]) -> list[Checkpoint]:
    """The checkpoints that ``--checkpoint`` names: one, several with commas in between, or ``all``."""
    if text == ALL:
        return list(known.values())
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in known:
            meant = did_you_mean(name, known)
            listed = ", ".join(known)
            raise SetupError(
                f"--checkpoint {name}: no such checkpoint; {meant}there are {listed}, and {ALL}", key="--checkpoint"
            )
    return [known[name] for name in names]
