import argparse
from collections.abc import Callable, Sequence

import pytest

from agentic_video.commands.numbers import (
    amount,
    fraction,
    natural,
    picture_side,
    port,
    positive,
    probability,
    seconds,
    seed_or_none,
    share,
)


def test_numbers_in_their_range_are_taken() -> None:
    assert (fraction("0"), fraction("0.25"), fraction("1")) == (0.0, 0.25, 1.0)
    assert (positive("1"), positive("64")) == (1, 64)


def test_others_are_refused() -> None:
    for text in ("-0.1", "1.5", "nan", "half"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"expected a number from 0 to 1, got '{text}'"):
            fraction(text)
    for text in ("0", "-3", "two", "1.5", ""):
        with pytest.raises(argparse.ArgumentTypeError, match=f"expected a whole number from 1 on, got '{text}'"):
            positive(text)


@pytest.mark.parametrize(
    ("kind", "taken", "refused"),
    [
        (natural, ("0", "7"), ("-1", "1.5", "x")),
        (seed_or_none, ("-1", "0", "7"), ("-2", "x")),
        (port, ("0", "65535"), ("-1", "65536", "http")),
        (picture_side, ("16", "1024"), ("15", "1025")),
        (share, ("0.01", "0.99"), ("0", "1", "nan")),
        (probability, ("0.01", "1"), ("0", "1.01", "-1", "nan")),
        (amount, ("0", "2.5"), ("-0.1", "inf", "nan", "x")),
        (seconds, ("0.1", "600"), ("0", "-1", "inf", "x")),
    ],
)
def test_the_ends_of_each_range(kind: Callable[[str], float], taken: Sequence[str], refused: Sequence[str]) -> None:
    assert [kind(text) for text in taken] == [float(text) for text in taken]
    for text in refused:
        with pytest.raises(argparse.ArgumentTypeError, match=f"^expected .*, got '{text}'$"):
            kind(text)
