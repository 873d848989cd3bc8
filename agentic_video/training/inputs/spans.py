"""Parts of a recorded episode's tokens: turns and tags that SFT learns from, and what some tags may not look at."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch

from agentic_video.config.settings import HiddenFrom

HIDDEN = "hidden_spans"
"""Among a sequence's inputs: what :func:`hidden_spans` returns, as a tensor of shape (spans, 4)."""

Span = tuple[int, int]
"""First, and one after the last."""
Decode = Callable[[Sequence[int]], str]


def turns_with_loss(rule: str, turns: int, listed: object = None) -> set[int]:
    """Numbers, from 0 on, of an episode's turns that are learnt from.

    ``rule`` is ``all``, ``last``, ``last_N`` (the last N) or ``row``: the numbers that the row lists, from 1 on.
    """
    if rule != "row":
        counts = {"all": turns, "last": 1}
        count = counts[rule] if rule in counts else int(rule.removeprefix("last_"))
        return set(range(max(0, turns - count), turns))
    numbers = list(listed) if isinstance(listed, Sequence) and not isinstance(listed, str) else []
    if not numbers or not all(type(number) is int and 1 <= number <= turns for number in numbers):
        raise ValueError(f"extra_info.loss_turns must list numbers of turns, from 1 to {turns}; it is {listed!r}")
    return {number - 1 for number in numbers}


def tagged(text: str, tag: str) -> list[tuple[Span, Span]]:
    """Characters of each closed ``<tag>...</tag>`` of a text, up to its first closing tag: with tags, and without."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    found, start = [], text.find(opening)
    while start >= 0 and (end := text.find(closing, start + len(opening))) >= 0:
        found.append(((start, end + len(closing)), (start + len(opening), end)))
        start = text.find(opening, end + len(closing))
    return found


def within(characters: Span, ids: Sequence[int], decode: Decode) -> Span:
    """The tokens that lie wholly within some characters of the text that they decode to."""

    def spelled(count: int) -> int:
        return len(decode(ids[:count]))

    counts = range(len(ids) + 1)
    start = bisect_left(counts, characters[0], key=spelled)
    return start, max(start, bisect_right(counts, characters[1], key=spelled) - 1)


def loss_in_tags(ids: Sequence[int], tags: Sequence[str], decode: Decode, endings: frozenset[int]) -> list[int]:
    """The loss mask of a turn that is learnt only within some tags, tags included, and at the tokens that end it."""
    text, mask = decode(ids), [int(token in endings) for token in ids]
    for tag in tags:
        for whole, _ in tagged(text, tag):
            start, end = within(whole, ids, decode)
            mask[start:end] = [1] * (end - start)
    return mask


def runs(ids: Sequence[int], chosen: frozenset[int]) -> Iterator[Span]:
    """The runs of some ids in a sequence."""
    edges = [False, *(token in chosen for token in ids), False]
    changes = [number for number, (before, after) in enumerate(pairwise(edges)) if before != after]
    yield from zip(changes[::2], changes[1::2], strict=True)


def hidden_spans(
    ids: Sequence[int],
    prompt: int,
    turns: Sequence[Span],
    rules: Sequence[HiddenFrom],
    decode: Decode,
    visual_ids: frozenset[int],
) -> list[tuple[int, int, int, int]]:
    """Visual tokens that some tokens of a sequence may not look at, by the rules of ``SftConfig``.

    Each is (first query, end of queries, first key, end of keys), with keys before their queries. ``prompt`` is the
    number of the opening's tokens, ``turns`` are spans of the model's turns.
    """
    inside: dict[str, list[Span]] = {tag: [] for tag, _, _ in rules}
    for start, end in turns:
        text = decode(ids[start:end])
        for tag, spans in inside.items():
            for _, content in tagged(text, tag):
                first, last = within(content, ids[start:end], decode)
                spans.append((start + first, start + last))
    shown = list(runs(ids, visual_ids))
    hidden = []
    for tag, which, what in rules:
        spans = inside[tag][-1:] if which == "last" else inside[tag][int(which) - 1 :]
        for start, end in spans:
            for first, last in shown:
                if start < end and last <= start and (last <= prompt) == (what == "opening"):
                    hidden.append((start, end, first, last))
    return hidden


def attention_allowed(hidden: Sequence[Sequence[Sequence[int]]], length: int) -> torch.Tensor:
    """The mask (sequences, 1, queries, keys) of sequences padded to ``length``: causal, but for :func:`hidden_spans`.

    Padding sees what is before it: a row of which nothing is allowed has no softmax.
    """
    allowed = torch.ones(length, length, dtype=torch.bool).tril().repeat(len(hidden), 1, 1, 1)
    for sequence, spans in zip(allowed, hidden, strict=True):
        for start, end, first, last in spans:
            sequence[:, start:end, first:last] = False
    return allowed
