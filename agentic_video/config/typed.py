"""Dataclasses from plain values: the one place where configs, YAML, JSON and JSON lines are checked.

:func:`dataclass_from` reads a mapping, :func:`read_json` a text, :func:`read_lines` a file of JSON lines. Pydantic
checks each value strictly: no text becomes a number, a whole number may stand for a float, a list becomes a tuple.
``Annotated[int, Ge(1)]`` and the like are checked too. Behind this module the data are trusted.
"""

import json
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agentic_video.types.schema import first_problem
from agentic_video.utils.errors import SetupError, described, did_you_mean, one_line

T = TypeVar("T")


class ConfigError(SetupError, ValueError):
    """A value of a config or of a file that can't be used; ``key`` is its dotted key."""


def class_at(target: str, where: str) -> type[Any]:
    """Return the class at a dotted path; ``where`` is the config key that names it."""
    module, _, name = str(target).rpartition(".")
    try:
        found = getattr(import_module(module), name, None) if module else None
    except (Exception, SystemExit) as error:  # whatever the import of a user's module raises
        raise ConfigError(f"{where}: {target}: {one_line(described(error))}", key=where) from error
    if not isinstance(found, type):
        raise ConfigError(f"{where}: {target}: no such class (expected package.module.Class)", key=where)
    return found


def unknown_key(where: str, key: str, known: Collection[str], place: str = "") -> ConfigError:
    """Make the error about a key that doesn't exist, with the nearest one that does."""
    key = _below(where, key)
    meant = did_you_mean(key.rpartition(".")[2], known)
    return ConfigError(f"{place}{key}: unknown key; {meant}known keys are {sorted(known)}", key=key)


def dataclass_from(cls: type[T], values: Any, where: str, place: str = "") -> T:
    """Make a dataclass, and the dataclasses that it holds, of plain values.

    ``_target_`` names another class than the field's declared one.

    Args:
        values: A mapping; None stands for an empty one.
        where: The dotted key of the values; may be empty.
        place: Start of messages, e.g. ``file.jsonl line 3: ``.

    Raises:
        ConfigError: A key is unknown or missing, a value has the wrong type, or the class refuses it.
    """
    values = {} if values is None else values
    if not isinstance(values, Mapping):
        raise ConfigError(f"{place}{where}: expected keys and values, got {values!r}", key=where)
    if "_target_" in values:
        cls = class_at(values["_target_"], _below(where, "_target_"))
    known = _types_of(cls, where)
    settable = {field.name: field for field in fields(cls) if field.init}  # type: ignore[arg-type]
    arguments = {}
    for name, value in values.items():
        if name == "_target_":
            continue
        if name not in settable:
            raise unknown_key(where, str(name), settable, place)
        if value is None and get_origin(known[name].hint) is Mapping:
            continue  # a key of a YAML file with nothing below it
        arguments[name] = known[name].read(value, _below(where, name), place)
    required = (field for field in settable.values() if field.default is MISSING and field.default_factory is MISSING)
    if missing := [field.name for field in required if field.name not in arguments]:
        keys = ", ".join(_below(where, name) for name in missing)
        raise ConfigError(f"{place}{keys}: missing", key=_below(where, missing[0]))
    try:
        made = cls(**arguments)
    except SetupError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place}{where}: {error}", key=where) from error
    except Exception as error:  # whatever a user's ``__post_init__`` raises
        raise ConfigError(f"{place}{where}: {cls.__name__}: {one_line(described(error))}", key=where) from error
    check_defaults(made, cls, where, place)
    return made


def check_defaults(made: object, cls: type[Any], where: str, place: str = "") -> None:
    """Make sure that an object's values, defaults too, have the types that its class, or a base of it, declares."""
    for name, known in _types_of(cls, where).items():
        if known.adapter is not None:
            known.check(getattr(made, name), _below(where, name), place)


def read_json(cls: type[T], text: str | bytes, place: str) -> T:
    """Make a dataclass of a JSON object; ``place`` names the file, and the line, in messages."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: not a JSON object ({one_line(error)})", key=place) from None
    return dataclass_from(cls, values, "", f"{place}: ")


def read_lines(cls: type[T], path: Path) -> Iterator[T]:
    """The objects of a file of JSON lines, one after the other; empty lines are skipped."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield read_json(cls, line, f"{path} line {number}")


class _Type:
    """The type of a field."""

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        parts = get_args(hint)
        self.nested: type[Any] | None = next(
            (part for part in (hint, *parts) if isinstance(part, type) and is_dataclass(part)), None
        )
        # pydantic takes a dictionary for a dataclass only where it isn't strict
        self.adapter: TypeAdapter[Any] | None = None
        if self.nested is None and get_origin(hint) is not ClassVar:
            self.adapter = TypeAdapter(hint, config=ConfigDict(strict=True, arbitrary_types_allowed=True))

    def read(self, value: Any, where: str, place: str) -> Any:
        if self.nested is None:
            return self.check(_as_tuples(value), where, place)
        origin: Any = get_origin(self.hint)
        if origin is tuple and isinstance(value, list | tuple):
            items: Any = enumerate(value)
            return tuple(dataclass_from(self.nested, item, f"{where}[{number}]", place) for number, item in items)
        if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
            return {key: dataclass_from(self.nested, item, _below(where, key), place) for key, item in value.items()}
        if value is None and origin in (Union, UnionType):
            return None
        return dataclass_from(self.nested, value, where, place)

    def check(self, value: Any, where: str, place: str) -> Any:
        assert self.adapter is not None
        try:
            self.adapter.validate_python(value)
        except ValidationError as error:
            # the parts of a union, which aren't keys, are in the problem's place too
            problem = first_problem(error)[1]
            raise ConfigError(f"{place}{where}: {problem}", key=where) from None
        return value


@cache
def _types(cls: Any) -> Mapping[str, _Type]:
    return {name: _Type(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}


def _types_of(cls: type[Any], where: str) -> Mapping[str, _Type]:
    try:
        return _types(cast(Hashable, cls))
    except Exception as error:  # whatever a name in a user's annotation comes to
        raise ConfigError(f"{where}: {cls.__name__}: {one_line(described(error))}", key=where) from error


def _below(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
