"""Metrics of a run by step, as its metrics files hold them."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

_MOST = 1e150
"""Larger numbers have squares that no float holds."""
_MOST_STEP = 2**53


def read_metrics(folder: Path) -> dict[int, dict[str, float]]:
    """Metrics by step from a run's metrics files; a later attempt's value of a step wins.

    Lines that a kill cut short, or that aren't a step's, are skipped.
    """
    steps: dict[int, dict[str, float]] = {}
    for file in _files(folder):
        _take(file, steps)
    return dict(sorted(steps.items()))


def load_metrics(folder: Path) -> tuple[dict[int, dict[str, float]], list[str]]:
    """Metrics as of :func:`read_metrics`, and a message for each line or file that was skipped."""
    steps: dict[int, dict[str, float]] = {}
    left_out: list[str] = []
    for file in _files(folder):
        try:
            left_out += _take(file, steps)
        except OSError as error:
            left_out.append(f"{file}: can't be read: {error.strerror}")
    return dict(sorted(steps.items())), left_out


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("metrics-*.jsonl"))


def _take(file: Path, steps: dict[int, dict[str, float]]) -> list[str]:
    """Add a file's metrics to those of others; a message for each line that holds none."""
    left_out = []
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            record = json.loads(line)
            step, data = int(record["step"]), record["data"].items()
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            step, data = _MOST_STEP, ()
        if abs(step) >= _MOST_STEP:
            left_out.append(f"{file} line {number}: no step's metrics")
            continue
        steps.setdefault(step, {}).update({key: _float(value) for key, value in data if isinstance(value, int | float)})
    return left_out


def _float(value: float) -> float:
    """A number of json as a float, which its whole numbers may be too large for."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def usable(metrics: Mapping[int, Mapping[str, float]]) -> dict[int, dict[str, float]]:
    """Metrics without values that have no mean and no curve: nan, infinite, or nearly so."""
    return {
        step: {key: value for key, value in values.items() if abs(value) < _MOST} for step, values in metrics.items()
    }


def series(metrics: Mapping[int, Mapping[str, float]], key: str) -> tuple[list[int], list[float]]:
    """Steps that have a metric, and its values."""
    pairs = [(step, values[key]) for step, values in metrics.items() if key in values]
    return [step for step, _ in pairs], [value for _, value in pairs]
