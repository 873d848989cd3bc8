"""Dataclasses from a config's plain values: every key known, every value of the field's type."""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from agentic_video.utils.choices import did_you_mean
from agentic_video.utils.errors import described, one_line


def class_at(target: str, where: str) -> type[Any]:
    """The class at a dotted path.

    Args:
        where: The config key that names it, for messages.

    Raises:
        ValueError: There is none, or its module doesn't run.
    """
    module, _, name = str(target).rpartition(".")
    try:
        found = getattr(import_module(module), name, None) if module else None
    except (Exception, SystemExit) as error:  # whatever importing somebody's module raises
        raise ValueError(f"{where}: {target}: {one_line(described(error))}") from error
    if not isinstance(found, type):
        raise ValueError(f"{where}: {target}: no such class (expected package.module.Class)")
    return found


def unknown_key(where: str, key: str, known: Collection[str]) -> str:
    """The message about a key that doesn't exist: where it stands, and what may be meant."""
    return f"{where}.{key}: unknown key; {did_you_mean(key, known)}known keys are {sorted(known)}"


def dataclass_from(cls: type[Any], values: Any, where: str) -> Any:
    """A dataclass, with the dataclasses that it holds, from a config's plain values; lists become tuples.

    A field's ``_target_`` names another class than the one that the field is declared with.

    Args:
        where: The config key of the values, for messages.

    Raises:
        ValueError: A key doesn't exist, a value is of another type, or the class refuses it; the message names it.
    """
    values = values or {}
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: expected keys and values, got {values!r}")
    if "_target_" in values:
        cls = class_at(values["_target_"], f"{where}._target_")
    try:
        hints = get_type_hints(cls)
    except Exception as error:  # whatever a name in an annotation comes to
        raise ValueError(f"{where}: {cls.__name__}: {one_line(described(error))}") from error
    known = {one.name: hints[one.name] for one in fields(cls) if one.init}
    arguments = {}
    for key, value in values.items():
        if key == "_target_":
            continue
        if key not in known:
            raise ValueError(unknown_key(where, key, known))
        if is_dataclass(known[key]):
            arguments[key] = dataclass_from(known[key], value, f"{where}.{key}")
            continue
        if value is None and get_origin(known[key]) is Mapping:
            continue  # a key of a file with nothing below it
        arguments[key] = frozen = _frozen(value)
        if not _fits(frozen, known[key]):
            raise ValueError(f"{where}.{key}: expected {_expected(known[key])}, got {frozen!r}")
    required = [
        one.name for one in fields(cls) if one.init and one.default is MISSING and one.default_factory is MISSING
    ]
    if lacks := [name for name in required if name not in arguments]:
        raise ValueError(f"{where}: {', '.join(lacks)} {'is' if len(lacks) == 1 else 'are'} missing")
    try:
        made = cls(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
    except Exception as error:  # whatever the ``__post_init__`` of somebody's class raises
        raise ValueError(f"{where}: {cls.__name__}: {one_line(described(error))}") from error
    check_types(made, hints, where)
    return made


def check_types(made: Any, hints: Mapping[str, Any], where: str) -> None:
    """Make sure that an object's values are of the types that a class declares: its defaults, too.

    Args:
        made: The object.
        hints: The types, by name: of its class, or of one that it is derived from.
        where: The config key of the object, for messages.

    Raises:
        ValueError: One isn't; the message names it.
    """
    for name, hint in hints.items():
        if not _fits(value := getattr(made, name), hint):
            raise ValueError(f"{where}.{name}: expected {_expected(hint)}, got {value!r}")


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; types that aren't known here take anything."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is Mapping:
        return isinstance(value, Mapping)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if parts[1:] == (...,):
            return all(_fits(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(_fits, value, parts))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (bool, str, NoneType):
        return isinstance(value, hint)
    return True


def _expected(hint: Any) -> str:
    """A type in words."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_expected(part) for part in parts)
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}" if len(parts) > 1 else str(parts[0])
    if origin is Mapping:
        return "keys and values"
    if origin is tuple:
        return "a list"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", NoneType: "null"}
    return names.get(hint, str(hint))
