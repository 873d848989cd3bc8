"""Conversion of plugins' and files' values to plain Python data, which JSON can hold."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, SupportsFloat
from uuid import UUID

import numpy as np

from agentic_video.types.text import short


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
    """Convert a sequence or an iterator to a tuple; a string or a single item raises a TypeError."""
    if isinstance(values, tuple):
        return values
    if isinstance(values, str) or not isinstance(values, Sequence | Iterator):
        got = type(values).__name__
        raise TypeError(f"{name} must be a tuple, got {got}; a tuple of one has a comma: ({item},)")
    return tuple(values)


def as_json(value: Any, where: str) -> Any:
    """Copy nested data as JSON has it; a TypeError says where something else is.

    Numpy's numbers become Python's, arrays and tuples lists, times ISO text, durations seconds, decimals numbers.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"{where} has a key that is no text: {short(odd[0])}")
        return {key: as_json(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item, f"{where}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else float(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        return as_json(value.tolist(), where)
    raise TypeError(f"{where} is {type(value).__name__}, which JSON doesn't have: {short(value)}")
