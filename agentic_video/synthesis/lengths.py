"""Lengths of trajectories in tokens and in calls (VideoZoomer, Figure 7, for its cold start). No model is asked."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from tyro.conf import Positional

from agentic_video.synthesis.inputs import read_episodes
from agentic_video.types.record import Record
from agentic_video.utils.option_types import OutputFile
from agentic_video.utils.workdir import write_whole

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Of the quantiles of a length."""


@dataclass(frozen=True)
class LengthOptions:
    """Selection of recorded episodes."""

    records: Annotated[Positional[tuple[Path, ...]], Field(min_length=1)]
    """files of records, or folders of runs or evaluations"""
    out: OutputFile | None = None
    """write the numbers to this JSON file too"""


@dataclass(frozen=True)
class Spread:
    """Distribution of a length over trajectories."""

    count: int
    mean: float
    least: int
    quantiles: Mapping[str, int]  # lengths that SHARES of the trajectories, in percent, don't exceed
    most: int


def spread(values: Sequence[int]) -> Spread | None:
    """The distribution of lengths; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    # the smallest length that at least this share doesn't exceed
    quantiles = {f"{100 * share:g}": ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in SHARES}
    return Spread(len(ordered), sum(ordered) / len(ordered), ordered[0], quantiles, ordered[-1])


def summarise(records: Iterable[Record]) -> dict[str, Any]:
    """Lengths of trajectories, and their number by calls.

    Returns:
        ``trajectories``; ``said``, a :class:`Spread` of generated tokens; ``whole``, the same with prompt and images,
        of the trajectories whose engine counted them; ``calls``, shares by the number of calls that were carried out.
    """
    said, whole, calls = list[int](), list[int](), Counter[int]()
    for record in records:
        trajectory = record.trajectory
        said.append(sum(turn.num_tokens for turn in trajectory.turns))
        calls[trajectory.tool_calls] += 1
        if trajectory.num_tokens > 0:
            whole.append(trajectory.num_tokens)
    spreads = {"said": spread(said), "whole": spread(whole)}
    return {
        "trajectories": len(said),
        **{name: asdict(found) if found else None for name, found in spreads.items()},
        "calls": {str(count): calls[count] / len(said) for count in sorted(calls)},
    }


def table(summary: Mapping[str, Any]) -> str:
    """The summary as text."""
    lines = [_line("tokens", "count", "mean", "least", *(f"{100 * share:g} %" for share in SHARES), "most")]
    for name, title in (("said", "generated"), ("whole", "whole, prompt and images included")):
        cells = ["0", *["-"] * (len(SHARES) + 3)]
        if found := summary[name]:
            numbers = (
                found["count"],
                round(found["mean"]),
                found["least"],
                *found["quantiles"].values(),
                found["most"],
            )
            cells = [f"{number:,}" for number in numbers]
        lines.append(_line(title, *cells))
    lines += ["", _line("calls carried out", "share")]
    lines += [_line(count, f"{100 * share:.1f} %") for count, share in summary["calls"].items()]
    return "\n".join(lines)


def _line(name: str, *cells: str) -> str:
    return name.ljust(35) + "".join(cell.rjust(9) for cell in cells)


def measure_lengths(options: LengthOptions) -> dict[str, Any]:
    """Measure episodes (see :func:`summarise`)."""
    summary = summarise(read_episodes(options.records, out=options.out))
    if options.out is not None:
        write_whole(options.out, [json.dumps(summary, indent=2) + "\n"])
    return summary
