"""Frames that match a text and differ from one another: greedy MAP inference of a determinantal point process.

Chen, Zhang and Zhou, "Fast Greedy MAP Inference for Determinantal Point Process to Improve Recommendation Diversity"
(Algorithm 1), on the kernel ``L = diag(r) S diag(r)`` of TimeSearch-R: ``r`` is how well a frame matches, ``S`` how
much two frames look alike.
"""

import numpy as np
import numpy.typing as npt

LEAST_GAIN = 1e-6
"""A frame that adds less to the determinant is, up to rounding, a combination of chosen ones."""


def relative_relevance(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Stretch scores to 0 (the least) and 1 (the most), shape (n,); all 1 if they are equal."""
    values = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite")
    spread = np.ptp(values) if values.size else 0.0
    return (values - values.min()) / spread if spread > 0 else np.ones_like(values)


def greedy_map(relevance: npt.NDArray[np.float64], alike: npt.ArrayLike, count: int) -> list[int]:
    """Choose items step by step, each time the item with the greatest gain in the determinant of the chosen kernel.

    Only the rows of chosen items are read: ``count * items`` numbers in all.

    Args:
        relevance: How well each item matches, not negative, shape (items,).
        alike: How alike two items are, shape (items, items): symmetric, not negative definite.
        count: How many to choose.

    Returns:
        Positions in ascending order: all of them if there are no more than ``count``. Of equal gains the first
        counts. If nothing raises the determinant any more (all look like chosen ones, or don't match at all), the
        most relevant remaining ones fill up the number.
    """
    likeness = np.asarray(alike)
    if relevance.ndim != 1 or likeness.shape != (len(relevance), len(relevance)):
        raise ValueError(f"{relevance.shape} relevances don't fit a matrix of shape {likeness.shape}")
    if (relevance < 0).any():
        raise ValueError("relevances must not be negative")
    if len(relevance) <= count:
        return list(range(len(relevance)))
    # What each item would multiply the determinant by; and its coordinates in the basis that the chosen ones span.
    gains = relevance**2 * likeness.diagonal().astype(np.float64)
    coordinates = np.zeros((max(count, 0), len(relevance)))
    chosen: list[int] = []
    while len(chosen) < count:
        best = int(gains.argmax())
        if not gains[best] >= LEAST_GAIN:
            break
        row = relevance[best] * likeness[best].astype(np.float64) * relevance
        found = len(chosen)
        share = (row - coordinates[:found, best] @ coordinates[:found]) / np.sqrt(gains[best])
        coordinates[found] = share
        gains = gains - share**2
        chosen.append(best)
        gains[chosen] = -np.inf
    left = [item for item in np.argsort(-relevance, kind="stable").tolist() if item not in chosen]
    return sorted(chosen + left[: max(count, 0) - len(chosen)])
