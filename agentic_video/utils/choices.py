"""Suggestions for misspelt words."""

from collections.abc import Collection
from difflib import get_close_matches


def did_you_mean(word: str, known: Collection[str], alike: float = 0.6) -> str:
    """A question about the known word that is most like one that isn't, with a space after it; empty without one.

    Args:
        alike: How much the two must have in common, at least (1: all).
    """
    close = get_close_matches(word, known, n=1, cutoff=alike)
    return f"did you mean {close[0]}? " if close else ""
