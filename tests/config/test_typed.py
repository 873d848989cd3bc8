from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from agentic_video.config.typed import class_at, dataclass_from, unknown_key


@dataclass(frozen=True)
class Inner:
    size: int = 1

    def __post_init__(self) -> None:
        if self.size > 9:
            raise ValueError(f"size must be below 10, got {self.size}")


@dataclass(frozen=True)
class Outer:
    count: int = 2
    share: float = 0.5
    on: bool = False
    name: str = ""
    kind: Literal["a", "b"] = "a"
    maybe: float | None = None
    stops: tuple[str, ...] = ()
    inner: Inner = field(default_factory=Inner)
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Needed:
    name: str
    size: int
    share: float = 0.5


def test_values_become_a_dataclass() -> None:
    values = {"count": 3, "share": 1, "kind": "b", "maybe": None, "stops": ["x", "y"], "inner": {"size": 4}}
    assert dataclass_from(Outer, values, "block") == Outer(3, 1, kind="b", stops=("x", "y"), inner=Inner(4))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": "abc"}, "block.count: expected a whole number, got 'abc'"),
        ({"count": True}, "block.count: expected a whole number, got True"),
        ({"share": "x"}, "block.share: expected a number, got 'x'"),
        ({"on": 1}, "block.on: expected true or false, got 1"),
        ({"name": 3}, "block.name: expected a text, got 3"),
        ({"kind": "c"}, "block.kind: expected one of a, b, got 'c'"),
        ({"maybe": "x"}, "block.maybe: expected a number or null, got 'x'"),
        ({"stops": "x"}, "block.stops: expected a list, got 'x'"),
        ({"stops": [1]}, "block.stops: expected a list, got (1,)"),
        ({"inner": {"size": 10}}, "block.inner: size must be below 10, got 10"),
        ({"inner": 5}, "block.inner: expected keys and values, got 5"),
        ({"words": ["x"]}, "block.words: expected keys and values, got ('x',)"),
        ({"cuont": 3}, "block.cuont: unknown key; did you mean count? known keys are ['count', "),
        ({"_target_": "math.pi"}, "block._target_: math.pi: no such class (expected package.module.Class)"),
    ],
)
def test_mistakes_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        dataclass_from(Outer, values, "block")
    assert str(caught.value).startswith(message)


def test_what_is_missing_is_named() -> None:
    assert dataclass_from(Needed, {"name": "a", "size": 1}, "block") == Needed("a", 1)
    with pytest.raises(ValueError, match=r"^block: size is missing$"):
        dataclass_from(Needed, {"name": "a"}, "block")
    with pytest.raises(ValueError, match=r"^block: name, size are missing$"):
        dataclass_from(Needed, None, "block")


@dataclass(frozen=True)
class Raising:
    table: str = ""

    def __post_init__(self) -> None:
        {}[self.table]


@dataclass(frozen=True)
class Misnamed:
    size: "Undefined" = 3  # type: ignore[name-defined]  # noqa: F821


@dataclass(frozen=True)
class WithoutComma:
    stops: tuple[str, ...] = "</a>"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Raising, r"^block: Raising: KeyError: 'x' \(test_typed\.py line \d+\)$"),
        (Misnamed, r"^block: Misnamed: NameError: name 'Undefined' is not defined$"),
        (WithoutComma, r"^block\.stops: expected a list, got '</a>'$"),
    ],
)
def test_what_is_wrong_with_somebody_s_class_is_one_line(cls: type, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclass_from(cls, {"table": "x"} if cls is Raising else {}, "block")


def test_a_module_that_ends_the_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ends_it.py").write_text("import sys\nsys.exit(4)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^key: ends_it\.Own: SystemExit: 4 \(ends_it\.py line 2\)$"):
        class_at("ends_it.Own", "key")


def test_a_key_with_nothing_below_it_is_empty() -> None:
    assert dataclass_from(Outer, {"words": None}, "block") == Outer()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no.such.Class", "key: no.such.Class: ModuleNotFoundError: No module named 'no'"),
        ("Bare", "key: Bare: no such class (expected package.module.Class)"),
        ("math.Pi", "key: math.Pi: no such class (expected package.module.Class)"),
    ],
)
def test_classes_that_are_not_there(target: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        class_at(target, "key")
    assert str(caught.value) == message


def test_an_unknown_key_without_a_near_one() -> None:
    assert unknown_key("block", "zzz", {"count"}) == "block.zzz: unknown key; known keys are ['count']"
