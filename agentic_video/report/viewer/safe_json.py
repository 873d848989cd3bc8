"""JSON that is safe anywhere in an HTML page."""

import json
import math
from collections.abc import Mapping
from typing import Any

_MOST_BITS = 13_000
"""Limit of a whole number; Python writes no more than 4,300 digits."""
_COMPACT = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def to_json(value: Any) -> str:
    """JSON that is safe anywhere in an HTML page: ASCII, without ``<``, ``>`` and ``&``, and without NaN.

    Half surrogate pairs and U+2028 become escapes, as all characters beyond ASCII.
    """
    try:
        text = _COMPACT.encode(value)
    except ValueError:  # NaN or infinity somewhere
        text = _COMPACT.encode(_plain(value))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: Any) -> Any:
    """A value with None for numbers that JSON doesn't have, or Python doesn't write (thousands of digits)."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def finite(value: Any) -> float | None:
    """A number as a finite float; None for anything else."""
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:
        return None
