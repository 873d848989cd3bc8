"""Greedy MAP of a determinantal point process, compared with full determinants."""

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.video.retrieval.dpp import greedy_map, relative_relevance

Floats = npt.NDArray[np.float64]


def directions(*degrees: float) -> Floats:
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def alike(features: Floats) -> Floats:
    return features @ features.T


def determinant(relevance: Floats, features: Floats, chosen: tuple[int, ...]) -> float:
    kernel = np.outer(relevance, relevance) * alike(features)
    return float(np.linalg.det(kernel[np.ix_(chosen, chosen)]))


def greedy_by_definition(relevance: Floats, features: Floats, count: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        left = [item for item in range(len(relevance)) if item not in chosen]
        chosen.append(max(left, key=lambda item: determinant(relevance, features, (*chosen, item))))
    return sorted(chosen)


def test_scores_are_stretched_from_0_to_1() -> None:
    assert relative_relevance([0.1, 0.3, 0.2]).tolist() == pytest.approx([0.0, 1.0, 0.5])
    assert relative_relevance([-1.0, 3.0]).tolist() == [0.0, 1.0]
    assert relative_relevance([0.2, 0.2]).tolist() == [1.0, 1.0] and relative_relevance([]).tolist() == []


def test_scores_must_be_numbers() -> None:
    with pytest.raises(ValueError, match="finite"):
        relative_relevance([0.1, float("nan")])


@pytest.mark.parametrize(
    ("relevance", "degrees", "count", "chosen"),
    [
        # one: the most relevant
        ([0.2, 1.0, 0.6], (0, 30, 60), 1, [1]),
        # the second isn't the next relevant, 5 degrees away (0.81 sin^2 5 = 0.006), but the one at a right angle (0.25)
        ([1.0, 0.9, 0.5], (0, 5, 90), 2, [0, 2]),
        # unless that hardly matches: 0.05^2 is less than 0.81 sin^2 5
        ([1.0, 0.9, 0.05], (0, 5, 90), 2, [0, 1]),
        # what doesn't match at all is never chosen for being different
        ([1.0, 0.9, 0.0], (0, 5, 90), 2, [0, 1]),
        # equal gains: the earlier
        ([1.0, 1.0, 1.0], (0, 0, 0), 1, [0]),
        # in the plane two vectors span all: the third is the most relevant one left
        ([1.0, 0.4, 0.9, 0.6], (0, 90, 45, 10), 3, [0, 2, 3]),
        # the same picture again and again
        ([0.0, 0.5, 1.0, 0.5], (7, 7, 7, 7), 3, [1, 2, 3]),
    ],
)
def test_by_hand(relevance: list[float], degrees: tuple[float, ...], count: int, chosen: list[int]) -> None:
    assert greedy_map(np.array(relevance), alike(directions(*degrees)), count) == chosen


@pytest.mark.parametrize(("count", "chosen"), [(3, [0, 1, 2]), (9, [0, 1, 2]), (0, [])])
def test_as_many_as_asked_for(count: int, chosen: list[int]) -> None:
    assert greedy_map(np.array([0.0, 1.0, 0.5]), alike(directions(0, 10, 20)), count) == chosen


@st.composite
def small_sets(draw: st.DrawFn) -> tuple[Floats, Floats, int]:
    items, seed = draw(st.integers(2, 8)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(items, 8))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return rng.uniform(0.1, 1.0, items), features, draw(st.integers(1, items))


@given(small_sets())
def test_it_is_greedy_by_determinants(case: tuple[Floats, Floats, int]) -> None:
    relevance, features, count = case
    assert greedy_map(relevance, alike(features), count) == greedy_by_definition(relevance, features, count)


@given(small_sets())
def test_it_is_close_to_the_best_of_all_sets(case: tuple[Floats, Floats, int]) -> None:
    """Greedy is at least 1 / (k!)^2 of the best determinant (Civril and Magdon-Ismail); one item is the best one."""
    relevance, features, count = case
    found = determinant(relevance, features, tuple(greedy_map(relevance, alike(features), count)))
    best = max(determinant(relevance, features, some) for some in combinations(range(len(relevance)), count))
    factorial = float(np.prod(np.arange(1, count + 1)))
    assert best / factorial**2 - 1e-12 <= found <= best + 1e-12
    if count == 1:
        assert found == pytest.approx(best)


@given(st.integers(1, 40), st.integers(0, 12), st.integers(0, 2**32 - 1), st.booleans())
def test_it_chooses_distinct_items_in_order(items: int, count: int, seed: int, same: bool) -> None:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(items, 3)).astype(np.float32)
    if same:
        features[:] = features[0]
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    chosen = greedy_map(relative_relevance(rng.normal(size=items).tolist()), alike(features), count)
    assert len(chosen) == min(items, count) and chosen == sorted(set(chosen))
    assert all(0 <= item < items for item in chosen)


def test_wrong_shapes_and_values_are_refused() -> None:
    with pytest.raises(ValueError, match="fit"):
        greedy_map(np.ones(3), alike(directions(0, 1)), 1)
    with pytest.raises(ValueError, match="negative"):
        greedy_map(np.array([-0.1, 1.0]), alike(directions(0, 1)), 1)
