"""Metrics of a run by step, as its metrics files hold them."""

import json
from collections.abc import Mapping
from pathlib import Path


def read_metrics(folder: Path) -> dict[int, dict[str, float]]:
    """Metrics by step from a run's metrics files; a later attempt's value of a step wins.

    A line that a kill cut short, or that isn't a step's, is passed over.
    """
    steps: dict[int, dict[str, float]] = {}
    for file in sorted(folder.glob("metrics-*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
                step, data = int(record["step"]), record["data"].items()
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                continue
            steps.setdefault(step, {}).update({key: value for key, value in data if isinstance(value, int | float)})
    return dict(sorted(steps.items()))


def series(metrics: Mapping[int, Mapping[str, float]], key: str) -> tuple[list[int], list[float]]:
    """Steps that have a metric, and its values."""
    pairs = [(step, values[key]) for step, values in metrics.items() if key in values]
    return [step for step, _ in pairs], [value for _, value in pairs]
