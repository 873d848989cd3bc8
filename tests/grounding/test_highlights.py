"""Highlights by hand, and average precision against a reckoning by thresholds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.grounding.highlights import Ratings, clip_scores, highlight_ap, hit_at_one, ratings_of, read_ratings
from agentic_video.types.row import VideoQA

RATED = Ratings(((0, 0, 0), (4, 4, 0), (2, 4, 0), (0, 0, 0)))
"""Four clips: very good to the first the second one, to the second person two, to the third none."""


def test_highlights_by_hand() -> None:
    assert RATED.highlights() == ((False, True, False, False), (False, True, True, False), (False,) * 4)
    # 3 > 2 > 1: clips 1, 0, 2 in this order. The first person's highlight is found at once: 1. The second's at 1/1 and
    # 2/3; the third has none: 0
    assert highlight_ap((0.2, 0.9, 0.1, 0.0), RATED) == pytest.approx((1 + (1 + 2 / 3) / 2 + 0) / 3)
    # the worst order: the first's highlight third, the second's third and last: 1/3; 1/2 for both, as the precision of
    # the higher recall is the better one
    assert highlight_ap((0.9, 0.1, 0.0, 0.8), RATED) == pytest.approx((1 / 3 + 1 / 2 + 0) / 3)
    # from a rating of 2 on the first person has two highlights
    assert highlight_ap((0.2, 0.9, 0.1, 0.0), RATED, 2) == pytest.approx(2 * (1 + 2 / 3) / 2 / 3)


def test_clips_with_one_score_are_found_together() -> None:
    """One point of two highlights among three: the recall of one is never reached by itself."""
    assert highlight_ap((0.0, 1.0, 1.0, 1.0), Ratings(((0,) * 3, (4,) * 3, (4,) * 3, (0,) * 3))) == pytest.approx(2 / 3)


def test_where_all_or_nothing_is_a_highlight() -> None:
    assert highlight_ap((0.5, 0.1), Ratings(((4, 0, 4), (4, 0, 4)))) == pytest.approx(2 / 3)


def test_the_best_clip_must_be_a_highlight_to_one_of_the_three() -> None:
    assert [hit_at_one(scores, RATED) for scores in ((0, 1, 0, 0), (0, 0, 1, 0), (1, 0, 0, 0), ())] == [1, 1, 0, 0]
    assert hit_at_one((0.0, 0.5, 0.0, 0.5), RATED) == 1.0, "of several the first"
    assert hit_at_one((0.0, 0.5, 0.0, 0.0, 0.9), RATED) == 0.0, "beyond the video"
    assert highlight_ap((0.0, 0.5), RATED) == highlight_ap((0.0, 0.5, 0.0, 0.0, 0.9), RATED)


def test_earlier_intervals_are_surer() -> None:
    # middles 1, 3, 5, 7
    assert clip_scores([(4.0, 8.0), (0.0, 6.0)], 4) == (1.0, 1.0, 2.0, 2.0)
    assert clip_scores([(1.5, 3.0)], 2) == (0.0, 0.0) and clip_scores([(6.0, 2.0)], 4) == (0.0,) * 4


def test_ratings_of_a_row() -> None:
    extra = {"duration": 9.0, "relevant_clip_ids": [1, 2], "saliency_scores": [[4, 4, 0], [2, 4, 0]]}
    assert ratings_of(VideoQA("q", "v", "when?", "0 - 1", "intervals", windows=((0, 1),), extra=extra)) == RATED
    assert ratings_of(VideoQA("q", "v", "when?", "0 - 1", "intervals", windows=((0, 1),))) is None


@pytest.mark.parametrize(
    ("duration", "numbers", "given"),
    [
        (None, [0], [[1, 1, 1]]),
        (True, [0], [[1, 1, 1]]),
        (float("nan"), [0], [[1, 1, 1]]),
        (1.9, [0], [[1, 1, 1]]),
        (1e9, [0], [[1, 1, 1]]),
        (8, [4], [[1, 1, 1]]),
        (8, [-1], [[1, 1, 1]]),
        (8, [True], [[1, 1, 1]]),
        (8, ["0"], [[1, 1, 1]]),
        (8, "0", [[1, 1, 1]]),
        (8, [0], [[1, 1]]),
        (8, [0], [[1, 1, 5]]),
        (8, [0], ["111"]),
        (8, [0], [[1, 1, 1], [1, 1, 1]]),
    ],
)
def test_ratings_that_do_not_fit_are_none(duration: Any, numbers: Any, given: Any) -> None:
    assert read_ratings(duration, numbers, given) is None


ANYTHING = st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=3), st.lists, max_leaves=6)


@given(ANYTHING, ANYTHING, ANYTHING)
def test_whatever_a_row_holds(duration: Any, numbers: Any, given: Any) -> None:
    found = read_ratings(duration, numbers, given)
    assert found is None or all(len(clip) == 3 for clip in found.clips)


def by_thresholds(scores: list[int], gold: list[bool]) -> float:
    """As the published script has it: for each recall the best precision of all thresholds that reach it."""
    if len(set(gold)) == 1:
        return float(gold[0])
    points = {}
    for least in set(scores):
        taken = [is_gold for score, is_gold in zip(scores, gold, strict=True) if score >= least]
        points[least] = (sum(taken), sum(taken) / len(taken))
    recalls = {found for found, _ in points.values() if found}
    return sum(max(p for found, p in points.values() if found >= recall) for recall in recalls) / len(recalls)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12))
def test_average_precision_as_published(clips: list[tuple[int, bool]]) -> None:
    scores, gold = [score for score, _ in clips], [is_gold for _, is_gold in clips]
    ratings = Ratings(tuple((4 if is_gold else 0,) * 3 for is_gold in gold))
    assert highlight_ap(scores, ratings) == pytest.approx(by_thresholds(scores, gold))
