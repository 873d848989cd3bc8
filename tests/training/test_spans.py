"""Which tokens SFT learns from, and what some don't see: worked out by hand, letter by letter."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.training.inputs.spans import (
    attention_allowed,
    hidden_spans,
    loss_in_tags,
    tagged,
    turns_with_loss,
    within,
)

IMAGE = 0
PIECES = ["", "<a>", "x", "yy", "</a>", "<b>", "</b>", "z</a>", "<a>q", "é"]
"""What each id spells; 0 is a placeholder of an image."""


def spell(ids: Sequence[int]) -> str:
    return "".join(PIECES[token] for token in ids)


@pytest.mark.parametrize(
    ("rule", "turns", "listed", "expected"),
    [
        ("all", 3, None, {0, 1, 2}),
        ("all", 0, None, set()),
        ("last_2", 0, None, set()),
        ("last", 3, None, {2}),
        ("last_2", 3, None, {1, 2}),
        ("last_5", 3, None, {0, 1, 2}),
        ("row", 3, [1, 3], {0, 2}),
        ("row", 3, (2,), {1}),
    ],
)
def test_turns(rule: str, turns: int, listed: object, expected: set[int]) -> None:
    assert turns_with_loss(rule, turns, listed) == expected


@pytest.mark.parametrize("listed", [None, [], [0], [4], ["1"], [True], "12", 3, [1, 1.5]])
def test_a_row_without_numbers_of_turns_is_refused(listed: object) -> None:
    with pytest.raises(ValueError, match=r"extra_info\.loss_turns must list numbers of turns, from 1 to 3"):
        turns_with_loss("row", 3, listed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<a>x</a>", [((0, 8), (3, 4))]),
        ("-<a></a><a>y</a>", [((1, 8), (4, 4)), ((8, 16), (11, 12))]),
        ("<a>x<a>y</a></a>", [((0, 12), (3, 8))]),
        ("</a><a>x", []),
        ("<a", []),
    ],
)
def test_tags(text: str, expected: list[object]) -> None:
    assert tagged(text, "a") == expected


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(0, 30), st.integers(0, 30))
def test_what_lies_within_is_within(ids: list[int], begins: int, ends: int) -> None:
    first, last = sorted((begins, ends))
    start, end = within((first, last), ids, spell)
    kept = set(range(start, end))
    places = [(len(spell(ids[:number])), len(spell(ids[: number + 1]))) for number in range(len(ids))]
    assert kept == {number for number, (begin, stop) in enumerate(places) if first <= begin and stop <= last}


def test_loss_in_tags() -> None:
    # x <a> yy </a> x z</a> <b> x </b>, and the end of the turn (9)
    ids = [2, 1, 3, 4, 2, 7, 5, 2, 6, 9]
    assert loss_in_tags(ids, ["a"], spell, frozenset({9})) == [0, 1, 1, 1, 0, 0, 0, 0, 0, 1]
    assert loss_in_tags(ids, ["a", "b"], spell, frozenset()) == [0, 1, 1, 1, 0, 0, 1, 1, 1, 0]


def test_what_is_hidden() -> None:
    # opening: x, two images' tokens, x; turn <a>x</a>; observation of one token; turn <a>yy</a><b>x</b>; an image after
    ids = [2, 0, 0, 2, 1, 2, 4, 0, 1, 3, 4, 5, 2, 6, 0]
    turns, prompt = [(4, 7), (8, 14)], 4
    visual = frozenset({IMAGE})
    assert hidden_spans(ids, prompt, turns, [("b", "last", "opening")], spell, visual) == [(12, 13, 1, 3)]
    assert hidden_spans(ids, prompt, turns, [("a", "last", "opening")], spell, visual) == [(9, 10, 1, 3)]
    # the first call sees all there is; the second doesn't see what the first showed
    assert hidden_spans(ids, prompt, turns, [("a", "2", "observations")], spell, visual) == [(9, 10, 7, 8)]
    assert hidden_spans(ids, prompt, turns, [("a", "1", "opening")], spell, visual) == [(5, 6, 1, 3), (9, 10, 1, 3)]
    assert hidden_spans(ids, prompt, turns, [("a", "3", "opening"), ("c", "last", "opening")], spell, visual) == []


def test_attention_mask_by_hand() -> None:
    allowed = attention_allowed([[(2, 4, 0, 1)], []], 4)
    assert allowed.shape == (2, 1, 4, 4) and allowed.dtype == torch.bool
    assert allowed[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]]
    assert allowed[1, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


SEQUENCES = st.lists(st.integers(0, 9), min_size=1, max_size=24)


@given(SEQUENCES, st.integers(0, 24), st.sampled_from(["last", "1", "2"]), st.sampled_from(["opening", "observations"]))
def test_tokens_see_themselves_and_never_the_future(ids: list[int], prompt: int, which: str, what: str) -> None:
    prompt = min(prompt, len(ids))
    spans = hidden_spans(ids, prompt, [(prompt, len(ids))], [("a", which, what)], spell, frozenset({IMAGE}))  # type: ignore[list-item]
    allowed = attention_allowed([spans], len(ids))[0, 0]
    assert allowed.diagonal().all() and not allowed.triu(1).any()
    for query, key in (~allowed).tril().nonzero().tolist():
        assert ids[key] == IMAGE and (key < prompt) == (what == "opening") and query >= prompt
