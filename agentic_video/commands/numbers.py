"""Numbers as options take them, for :mod:`argparse`: each says what it expects."""

import argparse
import math
from collections.abc import Callable


def _whole(text: str, fits: Callable[[int], bool], expected: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or not fits(value):
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return value


def _number(text: str, fits: Callable[[float], bool], expected: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and fits(value)):
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return value


def positive(text: str) -> int:
    """A whole number from 1 on."""
    return _whole(text, lambda value: value >= 1, "a whole number from 1 on")


def natural(text: str) -> int:
    """A whole number from 0 on."""
    return _whole(text, lambda value: value >= 0, "a whole number from 0 on")


def seed_or_none(text: str) -> int:
    """A seed, or -1 for none."""
    return _whole(text, lambda value: value >= -1, "a whole number from 0 on, or -1 for none")


def port(text: str) -> int:
    """A port; 0 for a free one."""
    return _whole(text, lambda value: 0 <= value <= 65_535, "a port from 0 to 65535")


def picture_side(text: str) -> int:
    """The longest side of a picture in pixels."""
    return _whole(text, lambda value: 16 <= value <= 1024, "a whole number from 16 to 1024")


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    return _number(text, lambda value: 0 <= value <= 1, "a number from 0 to 1")


def share(text: str) -> float:
    """A number between 0 and 1."""
    return _number(text, lambda value: 0 < value < 1, "a number above 0 and below 1")


def probability(text: str) -> float:
    """A number up to 1 that isn't 0, as ``top_p`` is."""
    return _number(text, lambda value: 0 < value <= 1, "a number above 0, at most 1")


def amount(text: str) -> float:
    """A number from 0 on, as temperatures and prices are."""
    return _number(text, lambda value: value >= 0, "a number from 0 on")


def seconds(text: str) -> float:
    """A time above 0."""
    return _number(text, lambda value: value > 0, "a number above 0")
