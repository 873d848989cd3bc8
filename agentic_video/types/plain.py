"""Plain data of what code of others hands over: numbers of numpy are as good, but JSON can't hold them."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, SupportsFloat

import numpy as np


def whole(value: Any, what: str) -> int:
    """A whole number of any kind as Python's own.

    Args:
        what: How the error names it.

    Raises:
        TypeError: It is none.
    """
    try:
        return int(operator.index(value))
    except TypeError:
        raise TypeError(f"{what} must be a whole number, got {type(value).__name__}") from None


def real(value: Any, what: str) -> float:
    """A number of any kind as Python's own.

    Args:
        what: How the error names it.

    Raises:
        TypeError: It is none; a text with a number in it isn't one.
    """
    if isinstance(value, SupportsFloat):
        try:
            return float(value)
        except TypeError:
            pass
    raise TypeError(f"{what} must be a number, got {type(value).__name__}")


def string(value: Any, what: str) -> str:
    """A text as it is.

    Args:
        what: How the error names it.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a text, got {type(value).__name__}")
    return value


def several(values: Any, what: str, one: str) -> tuple[Any, ...]:
    """A tuple as it is, and one of what a list holds or a generator, which is read once only.

    Args:
        what: How the error names it.
        one: What it should hold, in a word.

    Raises:
        TypeError: It is something else; a text would be taken for a tuple of its letters.
    """
    if isinstance(values, tuple):
        return values
    if isinstance(values, str) or not isinstance(values, Sequence | Iterator):
        got = type(values).__name__
        raise TypeError(f"{what} must be a tuple, got {got}; a tuple of one has a comma: ({one},)")
    return tuple(values)


def plain(value: Any, where: str) -> Any:
    """A copy of a value with numpy's numbers as Python's own.

    Args:
        where: How the error names it.

    Raises:
        TypeError: Something in it is no plain data; the message says where.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {plain(key, f"a name in {where}"): plain(one, f"{where}.{key}") for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one, f"{where}[{number}]") for number, one in enumerate(value)]
    if isinstance(value, tuple):
        return tuple(plain(one, f"{where}[{number}]") for number, one in enumerate(value))
    raise TypeError(f"{where} is no plain data: {value!r:.80}")
