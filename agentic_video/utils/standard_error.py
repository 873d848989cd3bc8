"""Standard errors of clustered questions: those about one video aren't independent.

Formulas of "Adding Error Bars to Evals" (Miller, arXiv 2411.00640), with the usual correction for few clusters; the
jackknife over clusters for scores that aren't means.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

MAX_REPLICATES = 1_000
"""Most groups of clusters, each of which the jackknife leaves out at once."""


def clustered_error(values: Sequence[float], clusters: Sequence[Hashable]) -> float | None:
    """Standard error of the mean of values with their clusters; None below two clusters.

    ``sqrt(G / (G - 1) * sum over clusters of (sum within it of (x - mean))**2) / n``, which is the usual
    ``stdev / sqrt(n)`` where each cluster holds one value.
    """
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} values have {len(clusters)} clusters")
    sums: dict[Hashable, float] = defaultdict(float)
    mean = statistics.fmean(values) if values else 0.0
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] += value - mean
    if len(sums) < 2:
        return None
    squares = math.fsum(total * total for total in sums.values())
    return math.sqrt(len(sums) / (len(sums) - 1) * squares) / len(values)


@dataclass(frozen=True)
class PairedDifference:
    """Difference of two runs, question by question.

    Attributes:
        questions: Number of shared questions.
        difference: Mean of the first's value less the second's; None where they share no question.
        error: Its standard error, clustered; None below two clusters.
        better: Number of questions where the first has the higher value.
    """

    questions: int
    difference: float | None
    error: float | None
    better: int
    worse: int


def paired_difference(
    first: Mapping[K, float], second: Mapping[K, float], cluster_of: Mapping[K, Hashable]
) -> PairedDifference:
    """Difference of two runs' means over shared questions, from values by question.

    Questions are mostly hard for both, so that its error is smaller than the two runs' own errors would give.
    """
    shared = [question for question in first if question in second]
    differences = [first[question] - second[question] for question in shared]
    return PairedDifference(
        questions=len(shared),
        difference=statistics.fmean(differences) if differences else None,
        error=clustered_error(differences, [cluster_of[question] for question in shared]),
        better=sum(difference > 0 for difference in differences),
        worse=sum(difference < 0 for difference in differences),
    )


def jackknife_errors(
    score: Callable[[Sequence[T]], Mapping[str, float]], members: Sequence[T], cluster_of: Callable[[T], Hashable]
) -> dict[str, float | None]:
    """Standard errors of named scores of any form, by leaving out one cluster after the other.

    None below two clusters, and where a score needs a certain cluster.
    """
    names = score(members)
    clusters = sorted({cluster_of(member) for member in members}, key=repr)
    group_of = {cluster: number % MAX_REPLICATES for number, cluster in enumerate(clusters)}
    groups: dict[int, list[T]] = defaultdict(list)
    for member in members:
        groups[group_of[cluster_of(member)]].append(member)
    if len(groups) < 2:
        return dict.fromkeys(names, None)
    replicates = []
    for left_out in sorted(groups):
        replicates.append(score([member for number, group in groups.items() if number != left_out for member in group]))
    errors: dict[str, float | None] = {}
    for name in names:
        values = [replicate[name] for replicate in replicates if name in replicate]
        if len(values) < len(replicates):
            errors[name] = None
            continue
        mean = statistics.fmean(values)
        squares = math.fsum((value - mean) ** 2 for value in values)
        errors[name] = math.sqrt((len(values) - 1) / len(values) * squares)
    return errors
