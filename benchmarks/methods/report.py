"""Table and curves of the finished results of :mod:`benchmarks.methods.run`."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentic_video.utils.standard_error import clustered_error
from benchmarks.learning.report import MARKER, SEARCHED, draw_lines, finished, merged, points, step_of_most
from benchmarks.tables import table

PLAIN = "grpo"
"""The method that the others are compared with."""
SEVERAL = 2
"""Standard errors by which a method must differ from it to be called better or worse."""
T_95 = (math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t for 95 % of both sides, by degrees of freedom."""

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Gain:
    """Difference to GRPO over seeds: its mean, and its standard error (None for one seed)."""

    mean: float
    error: float | None

    @property
    def clear(self) -> bool:
        """Whether it is more than chance, as far as a few seeds can say."""
        return self.error is not None and abs(self.mean) > SEVERAL * self.error

    def __str__(self) -> str:
        text = f"{self.mean:+.1f}" + ("" if self.error is None else f" ({self.error:.1f})")
        return f"**{text}**" if self.clear else text


def of_method(results: Sequence[Result], method: str) -> dict[int, Result]:
    """The results of a method by seed."""
    found = {int(result["seed"]): result for result in results if result["method"] == method}
    return dict(sorted(found.items()))


def second_look(result: Result) -> int:
    """The step at which four of five episodes look again after a miss; one more than all steps if there is none."""
    step = step_of_most(result["searched"].get("again"))
    return int(result["steps"]) + 1 if step == "-" else int(step)


def gain(differences: Sequence[float], within: Sequence[float] = ()) -> Gain:
    """Mean of differences seed by seed.

    Its standard error is that between seeds, or that over each seed's questions (``within``) if it is larger: of three
    seeds some lie close together by chance.
    """
    if len(differences) < 2:
        return Gain(statistics.fmean(differences), None)
    between = statistics.stdev(differences) / math.sqrt(len(differences))
    return Gain(
        statistics.fmean(differences), max(between, math.sqrt(sum(error**2 for error in within)) / len(differences))
    )


def gained(results: Sequence[Result], method: str, kind: str) -> Gain | None:
    """Accuracy of a method less GRPO's on the same seeds, in points; None where they share no seed."""
    mine, plain = of_method(results, method), of_method(results, PLAIN)
    differences, errors = [], []
    for seed in mine.keys() & plain.keys():
        before, after = (found[seed]["after"][kind]["answers"] for found in (plain, mine))
        changes = points(before, after)
        differences.append(statistics.fmean(changes))
        errors.append(clustered_error(changes, range(len(changes))) or 0.0)
    return gain(differences, errors) if differences else None


def sooner(results: Sequence[Result], method: str) -> Gain | None:
    """Steps until the second look is found, less GRPO's on the same seeds; None where they share no seed."""
    mine, plain = of_method(results, method), of_method(results, PLAIN)
    seeds = sorted(mine.keys() & plain.keys())
    return gain([second_look(mine[seed]) - second_look(plain[seed]) for seed in seeds]) if seeds else None


def interval(shares: Sequence[float]) -> str:
    """Mean of some shares in percent, and half of its 95 % interval over seeds."""
    percent = [100 * share for share in shares]
    text = f"{statistics.fmean(percent):.1f}"
    if 1 < len(percent) <= len(T_95):
        half = T_95[len(percent) - 1] * statistics.stdev(percent) / math.sqrt(len(percent))
        text += f" ± {half:.1f}"
    return text


def methods_of(results: Sequence[Result]) -> list[str]:
    """GRPO, then the others by name."""
    return sorted({result["method"] for result in results}, key=lambda method: (method != PLAIN, method))


def method_table(results: Sequence[Result]) -> str:
    """Each method: when it finds the second look, and how well it answers at the end."""
    rows = []
    for method in methods_of(results):
        found = list(of_method(results, method).values())
        looks = [second_look(result) for result in found]
        row = [method, str(len(found))]
        row.append(
            ", ".join(str(look) if look <= result["steps"] else "-" for look, result in zip(looks, found, strict=True))
        )
        row.append("" if method == PLAIN else str(sooner(results, method) or ""))
        for kind in ("greedy", "sampled"):
            row.append(interval([result["after"][kind]["accuracy"] for result in found]))
            row.append("" if method == PLAIN else str(gained(results, method, kind) or ""))
        row.append(f"{statistics.fmean(result['played'] for result in found):.1f}")
        row.append(f"{statistics.fmean(result['seconds'] for result in found) / 60:.1f}")
        rows.append(row)
    head = ["method", "seeds", "second look at step", "less GRPO's (s.e.)"]
    for kind in ("greedy", "sampled"):
        head += [f"{kind} %", "less GRPO's (s.e.)"]
    return table([*head, "batches a step", "minutes"], rows, numbers=2)


def start_table(results: Sequence[Result]) -> str:
    """The cold starts, by seed."""
    by_seed = {result["seed"]: result["before"] for result in results}
    rows = [
        [str(seed), *(f"{100 * by_seed[seed][kind]['accuracy']:.1f}" for kind in ("greedy", "sampled"))]
        for seed in sorted(by_seed)
    ]
    return table(["seed", "greedy %", "sampled %"], rows, numbers=2)


def draw(results: Sequence[Result], file: Path) -> bool:
    """Draw how each method learns to search, by step: a line for each, its mean over seeds; False without any."""
    found = {method: list(of_method(results, method).values()) for method in methods_of(results)}
    return draw_lines(found, "searched", SEARCHED, "sampled training episodes, mean over seeds", file)


def text_of(results: Sequence[Result]) -> str:
    """The tables."""
    return f"## Methods\n\n{method_table(results)}\n\n## Cold starts\n\n{start_table(results)}\n"


def write_report(out: Path) -> str:
    """Write ``methods.md`` and ``methods.png``; return the tables."""
    results = finished(out)
    if not results:
        return "nothing is finished yet"
    draw(results, out / "methods.png")
    text = text_of(results)
    (out / "methods.md").write_text(text, encoding="utf-8")
    return text


def publish(out: Path, docs: Path) -> None:
    """Put finished results into ``methods.json``, ``methods.md`` (after its marker) and ``methods.png`` of a folder."""
    results = merged(docs / "methods.json", out)
    draw(results, docs / "methods.png")
    page = docs / "methods.md"
    head, _, _ = page.read_text(encoding="utf-8").partition(MARKER)
    picture = "![how each method learns to search, by step](methods.png)"
    page.write_text(f"{head}{MARKER}\n{text_of(results)}\n## Curves\n\n{picture}\n", encoding="utf-8")
