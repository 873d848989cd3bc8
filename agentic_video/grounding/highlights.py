"""Quality of the highlights that a model names: QVHighlights' highlight detection (HL mAP, HL Hit@1).

A video is cut into clips of 2 s. Three people rated each clip within the gold windows from 0 (very bad) to 4 (very
good); all others count as 0. A clip is a highlight to one of them from a rating on, of which papers report 4.
Conventions are those of Moment-DETR's script:

- *HL mAP*: average precision of the clips by score, apart for each person, then the mean. It is the mean over the
  distinct recalls of the best precision at that recall or a higher one; 0 where nothing is a highlight, 1 where
  everything is.
- *HL Hit@1*: whether the clip with the highest score, of several the first, is a highlight to any of them.

Models of that benchmark score every clip. An agent answers with intervals, so :func:`clip_scores` makes scores of them:
an earlier interval is surer, and what no interval covers has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentic_video.types.row import Interval, VideoQA

CLIP_SECONDS = 2.0
RATERS = 3
VERY_GOOD = 4
"""Default least rating of a highlight."""
MAX_CLIPS = 10_000


@dataclass(frozen=True)
class Ratings:
    """Ratings of a video's clips.

    Attributes:
        clips: By clip what each of the three people gave it, 0 to 4.
    """

    clips: tuple[tuple[int, ...], ...]

    def highlights(self, least: int = VERY_GOOD) -> tuple[tuple[bool, ...], ...]:
        """By person and clip whether it is a highlight: shape (3, clips)."""
        return tuple(tuple(clip[rater] >= least for clip in self.clips) for rater in range(RATERS))


def ratings_of(qa: VideoQA) -> Ratings | None:
    """Ratings in a row's ``duration``, ``relevant_clip_ids`` and ``saliency_scores``; None where unusable."""
    duration, numbers, given = (qa.extra.get(name) for name in ("duration", "relevant_clip_ids", "saliency_scores"))
    return read_ratings(duration, numbers, given)


def read_ratings(duration: Any, numbers: Any, given: Any) -> Ratings | None:
    """Ratings of a video of ``duration`` seconds: for each rated clip's number three ratings; None where unusable."""
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        return None
    if not CLIP_SECONDS <= duration <= CLIP_SECONDS * MAX_CLIPS:
        return None
    clips = [(0,) * RATERS] * int(duration / CLIP_SECONDS)
    if not _is_list(numbers) or not _is_list(given) or len(numbers) != len(given):
        return None
    for number, ratings in zip(numbers, given, strict=True):
        if (
            not _is_list(ratings)
            or len(ratings) != RATERS
            or not all(_whole(rating, 0, VERY_GOOD) for rating in ratings)
        ):
            return None
        if not _whole(number, 0, len(clips) - 1):
            return None
        clips[int(number)] = tuple(map(int, ratings))
    return Ratings(tuple(clips))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most and value % 1 == 0


def clip_scores(answered: Sequence[Interval], clips: int) -> tuple[float, ...]:
    """Scores of clips by an answer, surest first: that of the first interval with a clip's middle, else 0."""
    middles = [CLIP_SECONDS * (number + 0.5) for number in range(clips)]
    ranked = [(float(len(answered) - place), *interval) for place, interval in enumerate(answered)]
    return tuple(next((score for score, start, end in ranked if start <= middle < end), 0.0) for middle in middles)


def highlight_ap(scores: Sequence[float], ratings: Ratings, least: int = VERY_GOOD) -> float:
    """HL mAP of one question, 0 to 1, for highlights rated ``least`` or better; missing scores are 0."""
    count = len(ratings.clips)
    padded = (*scores[:count], *[0.0] * (count - len(scores)))
    return sum(_average_precision(padded, gold) for gold in ratings.highlights(least)) / RATERS


def hit_at_one(scores: Sequence[float], ratings: Ratings) -> float:
    """HL Hit@1 of one question: 1.0 or 0.0; see :func:`highlight_ap`. Without scores it is 0."""
    best = max(range(len(scores)), key=lambda number: (scores[number], -number), default=len(ratings.clips))
    return float(best < len(ratings.clips) and max(ratings.clips[best]) >= VERY_GOOD)


def _average_precision(scores: Sequence[float], gold: Sequence[bool]) -> float:
    """The mean over the recalls that some least score reaches of the best precision at that recall or a higher one."""
    wanted = sum(gold)
    if wanted in (0, len(gold)):
        return float(wanted > 0)
    points: list[tuple[int, float]] = []  # highlights and precision at each least score, from the highest
    hits = 0
    order = sorted(range(len(scores)), key=lambda number: -scores[number])
    for taken, number in enumerate(order, start=1):
        hits += gold[number]
        if taken == len(order) or scores[order[taken]] != scores[number]:
            points.append((hits, hits / taken))
    best = 0.0
    at_recall: dict[int, float] = {}
    for found, precision in reversed(points):
        best = max(best, precision)
        if found:
            at_recall[found] = best
    return sum(at_recall.values()) / len(at_recall)
