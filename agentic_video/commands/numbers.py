"""Numbers as options take them, for :mod:`argparse`."""

import argparse


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text}")
    return value


def positive(text: str) -> int:
    """A number from 1 on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text}")
    return value
