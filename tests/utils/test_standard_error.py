"""Standard errors of clustered questions: by hand, and against a bootstrap over videos."""

import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.utils.standard_error import clustered_error, jackknife_errors, paired_difference


def test_by_hand() -> None:
    # mean 0.5; the videos' sums of deviations are 1 (0.5 + 0.5), 0 and -1: sqrt(3 / 2 * (1 + 0 + 1)) / 6
    assert clustered_error([1, 1, 0, 1, 0, 0], ["a", "a", "b", "b", "c", "c"]) == pytest.approx(math.sqrt(3) / 6)
    # as many questions in videos of their own: stdev 0.5477 / sqrt(6)
    assert clustered_error([1, 1, 0, 1, 0, 0], "abcdef") == pytest.approx(0.2236068)


def test_below_two_videos_there_is_none() -> None:
    assert clustered_error([], []) is None and clustered_error([1.0], ["a"]) is None
    assert clustered_error([1.0, 0.0], ["a", "a"]) is None
    with pytest.raises(ValueError, match="2 values have 1 clusters"):
        clustered_error([1.0, 0.0], ["a"])


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_one_question_a_video_is_the_usual_error(values: list[float]) -> None:
    usual = statistics.stdev(values) / math.sqrt(len(values))
    assert clustered_error(values, list(range(len(values)))) == pytest.approx(usual, abs=1e-9)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5)), min_size=1, max_size=30), st.randoms())
def test_order_and_names_of_videos_do_not_matter(pairs: list[tuple[float, int]], random: Any) -> None:
    error = clustered_error([value for value, _ in pairs], [video for _, video in pairs])
    random.shuffle(pairs)
    again = clustered_error([value for value, _ in pairs], [f"v{video}" for _, video in pairs])
    assert (error is None) == (again is None) and (error is None or again == pytest.approx(error, abs=1e-9))


def clustered_grades(videos: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Grades of two to seven questions about each of so many videos, some of which are harder than others."""
    generator = np.random.default_rng(seed)
    grades, names = [], []
    for video in range(videos):
        ease = generator.beta(0.8, 0.8)
        count = int(generator.integers(2, 8))
        grades += list((generator.random(count) < ease).astype(float))
        names += [video] * count
    return np.array(grades), np.array(names)


def bootstrap(grades: np.ndarray, videos: np.ndarray, rounds: int, seed: int) -> float:
    """The deviation of the mean over resampled videos: an independent reckoning of the same error."""
    generator = np.random.default_rng(seed)
    names = np.unique(videos)
    sums = np.array([grades[videos == name].sum() for name in names])
    counts = np.array([(videos == name).sum() for name in names])
    drawn = generator.integers(0, len(names), size=(rounds, len(names)))
    return float((sums[drawn].sum(1) / counts[drawn].sum(1)).std(ddof=1))


@pytest.mark.parametrize("seed", range(3))
def test_against_a_bootstrap_over_videos(seed: int) -> None:
    grades, videos = clustered_grades(200, seed)
    error = clustered_error(list(grades), list(videos))
    assert error == pytest.approx(bootstrap(grades, videos, 4_000, seed), rel=0.06)
    # the plain formula, which takes questions for independent, is far too small here
    assert error is not None and error > 1.2 * grades.std(ddof=1) / math.sqrt(len(grades))


@pytest.mark.parametrize("seed", range(3))
def test_the_jackknife_against_the_formula_and_the_bootstrap(seed: int) -> None:
    grades, videos = clustered_grades(150, seed)
    pairs = list(zip(grades, videos, strict=True))
    errors = jackknife_errors(
        lambda some: {"mean": float(np.mean([one for one, _ in some]))}, pairs, lambda one: one[1]
    )
    assert errors["mean"] == pytest.approx(clustered_error(list(grades), list(videos)), rel=0.03)
    assert errors["mean"] == pytest.approx(bootstrap(grades, videos, 4_000, seed), rel=0.06)


def test_the_jackknife_by_hand() -> None:
    members = [("a", 1.0), ("b", 0.0), ("c", 0.5)]
    errors = jackknife_errors(lambda some: {"most": max(value for _, value in some)}, members, lambda one: one[0])
    # without a 0.5, without b and c 1: deviations from 5/6 are -1/3, 1/6, 1/6; sqrt(2 / 3 * (1/9 + 1/36 + 1/36))
    assert errors == {"most": pytest.approx(math.sqrt(1 / 9))}
    assert jackknife_errors(lambda some: {"n": 1.0}, members[:1], lambda one: one[0]) == {"n": None}


def test_many_videos_are_left_out_in_groups() -> None:
    asked: list[int] = []

    def score(some: Any) -> dict[str, float]:
        asked.append(len(some))
        return {"mean": statistics.fmean(some)}

    values = [float(number % 2) for number in range(2_500)]
    errors = jackknife_errors(score, list(range(2_500)), lambda one: one)
    assert len(asked) == 1_001 and min(asked) == 2_497 and errors["mean"] is not None
    assert len(values) == 2_500


def test_a_paired_difference_by_hand() -> None:
    videos = {"p": "a", "q": "a", "r": "b", "s": "c", "t": "c"}
    first = {"p": 1.0, "q": 1.0, "r": 0.0, "s": 1.0}
    second = {"q": 0.0, "r": 1.0, "s": 1.0, "t": 0.0}
    found = paired_difference(first, second, videos)
    # shared are q, r, s with 1, -1, 0 in three videos: mean 0, sqrt(3 / 2 * 2) / 3
    assert (found.questions, found.difference, found.better, found.worse) == (3, 0.0, 1, 1)
    assert found.error == pytest.approx(math.sqrt(3) / 3)
    none = paired_difference(first, {}, videos)
    assert (none.questions, none.difference, none.error) == (0, None, None)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=2, max_size=20))
def test_runs_that_are_alike_do_not_differ(pairs: list[tuple[bool, int]]) -> None:
    grades = {number: float(right) for number, (right, _) in enumerate(pairs)}
    found = paired_difference(grades, grades, {number: video for number, (_, video) in enumerate(pairs)})
    assert found.difference == 0.0 and found.error in (0.0, None) and found.better == found.worse == 0
