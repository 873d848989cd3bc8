import argparse

import pytest

from agentic_video.commands.numbers import fraction, positive


def test_numbers_in_their_range_are_taken() -> None:
    assert (fraction("0"), fraction("0.25"), fraction("1")) == (0.0, 0.25, 1.0)
    assert (positive("1"), positive("64")) == (1, 64)


def test_others_are_refused() -> None:
    for text in ("-0.1", "1.5", "nan"):
        with pytest.raises(argparse.ArgumentTypeError, match="from 0 to 1"):
            fraction(text)
    for text in ("0", "-3"):
        with pytest.raises(argparse.ArgumentTypeError, match="from 1 on"):
            positive(text)
    with pytest.raises(ValueError):
        positive("two")
