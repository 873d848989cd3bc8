"""Checks and conversions of values handed over by plugins: numpy's numbers become Python's, which JSON can hold."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, SupportsFloat

import numpy as np


def as_int(value: Any, name: str) -> int:
    """Convert an integer of any type to Python's int; other types raise a TypeError that names the value."""
    try:
        return int(operator.index(value))
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {type(value).__name__}") from None


def as_float(value: Any, name: str) -> float:
    """Convert a number of any type to Python's float; other types, strings included, raise a TypeError."""
    if isinstance(value, SupportsFloat):
        try:
            return float(value)
        except TypeError:
            pass
    raise TypeError(f"{name} must be a number, got {type(value).__name__}")


def require_str(value: Any, name: str) -> str:
    """Return a string unchanged; other types raise a TypeError that names the value."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, got {type(value).__name__}")
    return value


def as_tuple(values: Any, name: str, item: str) -> tuple[Any, ...]:
    """Convert a sequence or an iterator to a tuple; a string or a single item raises a TypeError.

    Args:
        name: The value's name, for the error.
        item: Word for what it holds, for the error.
    """
    if isinstance(values, tuple):
        return values
    if isinstance(values, str) or not isinstance(values, Sequence | Iterator):
        got = type(values).__name__
        raise TypeError(f"{name} must be a tuple, got {got}; a tuple of one has a comma: ({item},)")
    return tuple(values)


def plain(value: Any, where: str) -> Any:
    """Copy plain data with numpy's numbers as Python's; anything else raises a TypeError that says where it is."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {plain(key, f"a name in {where}"): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, f"{where}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, tuple):
        return tuple(plain(item, f"{where}[{number}]") for number, item in enumerate(value))
    raise TypeError(f"{where} is no plain data: {value!r:.80}")
