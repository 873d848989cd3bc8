from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from agentic_video.config.typed import ConfigError, class_at, dataclass_from, read_lines
from agentic_video.utils.errors import SetupError


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
    more: tuple[Inner, ...] = ()
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    perhaps: Inner | None = None
    natural: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True)
class Needed:
    name: str
    size: int
    share: float = 0.5


def test_values_become_a_dataclass() -> None:
    values = {"count": 3, "share": 1, "kind": "b", "maybe": None, "stops": ["x", "y"], "inner": {"size": 4}}
    assert dataclass_from(Outer, values, "block") == Outer(3, 1, kind="b", stops=("x", "y"), inner=Inner(4))
    assert dataclass_from(Outer, {"words": None}, "block") == Outer()


def test_dataclasses_may_stand_in_lists_and_mappings() -> None:
    values = {"more": [{"size": 2}, {}], "by_name": {"x": {"size": 3}}, "perhaps": {"size": 5}}
    made = dataclass_from(Outer, values, "")
    assert (made.more, made.by_name, made.perhaps) == ((Inner(2), Inner()), {"x": Inner(3)}, Inner(5))
    assert dataclass_from(Outer, {"perhaps": None}, "").perhaps is None


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"count": "abc"}, "block.count"),
        ({"count": "3"}, "block.count"),
        ({"count": True}, "block.count"),
        ({"share": "x"}, "block.share"),
        ({"share": False}, "block.share"),
        ({"on": 1}, "block.on"),
        ({"name": 3}, "block.name"),
        ({"kind": "c"}, "block.kind"),
        ({"maybe": "x"}, "block.maybe"),
        ({"stops": "x"}, "block.stops"),
        ({"stops": [1]}, "block.stops"),
        ({"inner": {"size": 10}}, "block.inner"),
        ({"inner": 5}, "block.inner"),
        ({"words": ["x"]}, "block.words"),
        ({"more": [{}, {"size": "x"}]}, "block.more[1].size"),
        ({"by_name": {"x": {"siz": 1}}}, "block.by_name.x.siz"),
        ({"natural": -1}, "block.natural"),
        ({"cuont": 3}, "block.cuont"),
        ({"_target_": "math.pi"}, "block._target_"),
        (["x"], "block"),
    ],
)
def test_an_error_carries_the_key(values: Any, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        dataclass_from(Outer, values, "block")
    assert caught.value.key == key and str(caught.value).startswith(key) and "\n" not in str(caught.value)
    assert isinstance(caught.value, SetupError) and isinstance(caught.value, ValueError)


def test_an_unknown_key_has_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="did you mean count"):
        dataclass_from(Outer, {"cuont": 3}, "block")


@pytest.mark.parametrize(("values", "key"), [({"name": "a"}, "block.size"), (None, "block.name")])
def test_a_missing_key_is_named(values: Any, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        dataclass_from(Needed, values, "block")
    assert caught.value.key == key


@dataclass(frozen=True)
class Raising:
    table: str = "x"

    def __post_init__(self) -> None:
        dict[str, str]()[self.table]


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
        (Misnamed, r"^block: Misnamed: NameError"),
        (WithoutComma, r"^block\.stops: "),
    ],
)
def test_a_mistake_in_a_users_class_is_one_line(cls: type, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dataclass_from(cls, {}, "block")


def test_a_module_that_ends_the_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ends_it.py").write_text("import sys\nsys.exit(4)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"^key: ends_it\.Own: SystemExit: 4 \(ends_it\.py line 2\)$"):
        class_at("ends_it.Own", "key")


@pytest.mark.parametrize("target", ["no.such.Class", "Bare", "math.Pi"])
def test_a_class_that_does_not_exist(target: str) -> None:
    with pytest.raises(ConfigError, match=target) as caught:
        class_at(target, "key")
    assert caught.value.key == "key"


def test_lines_of_a_file_are_read_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"size": 2}\n\n{"size": 3}\n')
    assert list(read_lines(Inner, file)) == [Inner(2), Inner(3)]


@pytest.mark.parametrize(("line", "key"), [('{"size": 1', ""), ('{"size": "x"}', "size"), ("[1]", "")])
def test_a_bad_line_is_named(tmp_path: Path, line: str, key: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f"{{}}\n{line}\n")
    with pytest.raises(ConfigError, match=r"a\.jsonl line 2: ") as caught:
        list(read_lines(Inner, file))
    assert caught.value.key.endswith(key)
