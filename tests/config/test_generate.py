"""Yaml from dataclasses."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from agentic_video.config import generate
from agentic_video.systems.registry import SYSTEMS

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Inner:
    """Inside.

    Attributes:
        share: Of ``all``.
    """

    share: float = 0.5


@dataclass(frozen=True)
class Base:
    """Common.

    Attributes:
        url: Where it is; see :mod:`some.module`.
        limit: Most of
            them.
    """

    url: str = ""
    limit: int = 3


@dataclass(frozen=True)
class Outer(Base):
    """Outside.

    Attributes:
        limit: Fewer of them.
        inner: Parts.
        notice: Added.
        group: Follows another key.

    Raises:
        ValueError: Never.
    """

    inner: Inner = field(default_factory=Inner)
    notice: str = "\n{it}: 'now'"
    group: int = field(default=8, metadata={"config": "${other.n}"})


def test_each_field_has_its_description_and_its_value() -> None:
    assert list(generate.block(Outer(), 2, left_out=("url",))) == [
        "  # Fewer of them",
        "  limit: 3",
        "  # Parts",
        "  inner:",
        "    # Of all",
        "    share: 0.5",
        "  # Added",
        """  notice: "\\n{it}: 'now'\"""",
        "  # Follows another key",
        "  group: ${other.n}",
    ]


def test_a_field_without_a_description_is_refused() -> None:
    @dataclass(frozen=True)
    class Silent(Base):
        """Says nothing about its field."""

        loud: bool = False

    with pytest.raises(ValueError, match=r"Silent\.loud"):
        list(generate.block(Silent(), 0))


@pytest.mark.parametrize(
    "value", ["", "a", "a b", "on", "1", "null", "x: y", "# z", "\n", "ü", 1, 1.5, 1e-6, True, None, [1], {}, "{a}"]
)
def test_yaml_reads_what_was_written(value: object) -> None:
    assert yaml.safe_load(f"key: {generate.scalar(value)}") == {"key": value}


@pytest.mark.parametrize("file", generate.generated(REPOSITORY), ids=lambda path: path.name)
def test_the_files_are_up_to_date(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == generate.generated(REPOSITORY)[file], f"run {generate.COMMAND}"


def test_all_systems_are_generated() -> None:
    assert {path.stem for path in generate.generated(REPOSITORY)} == {*SYSTEMS, "agentic_video_blocks"}
