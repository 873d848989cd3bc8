"""The fidelity pages: config keys in their tables, and the column of defaults.

``python -m tests.docs.fidelity`` writes the last column of each table from the composed configs.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from omegaconf import ListConfig, OmegaConf

from tests.config.configs import SYSTEMS, set_environment
from tests.docs.tables import NOT_IN_YAML, REPOSITORY, STAGES, cluster, has_key

FOLDER = REPOSITORY / "docs" / "fidelity"
SHORT = ("system", "judge", "verifier", "retrieval")
"""Blocks under ``agentic_video`` that the pages name without it."""
HEAD = "| default |"


@dataclass(frozen=True)
class NamedKey:
    """A config key of a table's first cell, spelt out, and the stage whose config has it."""

    key: str
    stage: str = "cluster"


def full_key(key: str) -> str:
    return f"agentic_video.{key}" if key.split(".")[0] in SHORT else key


def keys_of(cell: str) -> list[NamedKey]:
    """The keys that a cell names; alternatives in brackets and overrides are none."""
    keys, last, stage = [], "", "cluster"
    for token in re.findall(r"`([^`]+)`", re.sub(r"\([^()]*\)", "", cell).partition(";")[0]):
        if token in STAGES:
            stage = token.removesuffix(".yaml")
        elif "=" not in token:
            last = last.rpartition(".")[0] + token if token.startswith(".") else full_key(token)
            keys.append(NamedKey(last, stage))
    return keys


def overrides_of(cell: str) -> list[list[str]]:
    """The overrides that a cell gives for other sources' values, those of one token together."""
    tokens = [token.split() for token in re.findall(r"`([^`]+)`", cell) if "=" in token]
    return [[full_key(override) for override in token] for token in tokens]


def table_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of the rows of tables that have a column of defaults."""
    lines, inside = text.split("\n"), False
    for number, line in enumerate(lines):
        inside = line.startswith("|") and (inside or line.endswith(HEAD))
        if inside and not line.endswith(HEAD) and not line.startswith("|---"):
            yield number, [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def value_of(name: str, named: NamedKey) -> Any:
    """A key's default: the composed config's, or the system's where its yaml leaves the key out."""
    if named.key in NOT_IN_YAML:
        return getattr(SYSTEMS[name](), named.key.rpartition(".")[2])
    config = cluster(name, named.stage)
    if not has_key(config, named.key):
        raise KeyError(f"{name}: {named.key} isn't in the config of {named.stage}")
    return OmegaConf.select(config, named.key)


def spelt(value: Any) -> str:
    """A value as the last column has it."""
    if isinstance(value, list | tuple | ListConfig):
        return ", ".join(spelt(item) for item in value) or "none"
    if isinstance(value, bool) or value is None:
        return f"`{value}`"
    if isinstance(value, int | float):
        small = isinstance(value, float) and 0 < abs(value) < 0.01
        return f"`{value:.0e}`".replace("e-0", "e-") if small else f"`{value:,}`"
    if " " in value or "\n" in value:
        return "our text"
    return f"`{value}`" if value else "empty"


def filled(name: str, text: str) -> str:
    """A page with its column of defaults as the configs have it."""
    lines = text.split("\n")
    for number, cells in table_rows(text):
        values = [spelt(value_of(name, key)) for key in keys_of(cells[0])]
        value = values[0] if len(set(values)) == 1 else ", ".join(values)
        lines[number] = f"| {' | '.join([*cells[:-1], value])} |".replace("|  |", "| |").replace("|  |", "| |")
    return "\n".join(lines)


def main() -> int:
    """Write the columns."""
    with pytest.MonkeyPatch.context() as patch:
        set_environment(patch)
        for name in (*SYSTEMS, "common"):
            page = FOLDER / f"{name}.md"
            text = page.read_text(encoding="utf-8")
            page.write_text(filled("videozoomer" if name == "common" else name, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
