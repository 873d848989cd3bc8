"""Lengths of trajectories in tokens and in calls (VideoZoomer, Figure 7, for its cold start). No model is asked."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agentic_video.evaluation.tables import section, table
from agentic_video.types.record import Record

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Of the quantiles of a length."""


def spread(values: Sequence[int]) -> dict[str, Any] | None:
    """Distribution of a length over trajectories; None without any.

    ``quantiles`` are by percent the smallest length that this share of the trajectories doesn't exceed.
    """
    if not values:
        return None
    quantiles = np.quantile(values, SHARES, method="inverted_cdf")
    return {
        "count": len(values),
        "mean": statistics.fmean(values),
        "least": min(values),
        "quantiles": {f"{100 * share:g}": int(length) for share, length in zip(SHARES, quantiles, strict=True)},
        "most": max(values),
    }


def summarise(records: Iterable[Record]) -> dict[str, Any]:
    """Lengths of trajectories, and their number by calls.

    Returns:
        ``trajectories``; ``said``, a :func:`spread` of generated tokens; ``whole``, the same with prompt and images,
        of the trajectories whose engine counted them; ``calls``, shares by the number of calls that were carried out.
    """
    said, whole, calls = list[int](), list[int](), Counter[int]()
    for record in records:
        trajectory = record.trajectory
        said.append(sum(turn.num_tokens for turn in trajectory.turns))
        calls[trajectory.tool_calls] += 1
        if trajectory.num_tokens > 0:
            whole.append(trajectory.num_tokens)
    return {
        "trajectories": len(said),
        "said": spread(said),
        "whole": spread(whole),
        "calls": {str(count): calls[count] / len(said) for count in sorted(calls)},
    }


def lengths_text(summary: Mapping[str, Any]) -> str:
    """The summary as Markdown."""
    rows = []
    for title, found in (("generated", summary["said"]), ("whole, with prompt and images", summary["whole"])):
        numbers = (
            (found["count"], round(found["mean"]), found["least"], *found["quantiles"].values(), found["most"])
            if found
            else (0, *["-"] * (len(SHARES) + 3))
        )
        rows.append((title, *numbers))
    header = ("tokens", "count", "mean", "least", *(f"{100 * share:g} %" for share in SHARES), "most")
    calls = ((count, f"{100 * share:.1f} %") for count, share in summary["calls"].items())
    return "\n".join([*table(header, rows), *section(("calls carried out", "share"), calls)])
