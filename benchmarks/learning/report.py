"""Tables and curves of the finished results of :mod:`benchmarks.learning.run`."""

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentic_video.report.summary import SMOOTHING, smooth
from agentic_video.utils.standard_error import clustered_error
from benchmarks.tables import table

MARKER = "<!-- results -->"
"""The page's line after which :func:`publish` writes."""
STAGES = ("base", "sft", "kto", "grpo")
TITLES = {"base": "base", "sft": "SFT", "kto": "KTO", "grpo": "GRPO"}
PICTURED = {"episode/reward_sampled": "reward", "episode/tool_calls": "calls an episode", "episode/frames": "frames"}

SEARCHED = {
    "looks": "looks an episode",
    "first_follows": "first looks that follow",
    "again": "looks again after a miss",
    "second_follows": "second looks that follow",
    "found": "episodes that find",
}
"""Figures of a search report (:mod:`agentic_video.toyworld.search_report`) that are drawn, by name."""

MOST = 0.8
"""Share of looks and episodes at which a system has learnt to search."""
SOON = ("first_follows", "second_follows", "found")
"""Figures of :data:`SEARCHED` that tell how soon that is."""

SEARCH = "search"
"""Variant of each system in the world that must be searched; its ablations begin with it."""

CLASSES = ("active", "adaptive", "direct")
"""Classes of questions (:data:`agentic_video.types.row.QuestionClass`)."""

Result = Mapping[str, Any]


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and standard deviation between seeds (None for one seed)."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def percent(values: Sequence[float]) -> str:
    """Shares as percent with their spread."""
    mean, spread = mean_and_spread([100 * value for value in values])
    return f"{mean:.1f}" if spread is None else f"{mean:.1f} ± {spread:.1f}"


def plain(values: Sequence[float]) -> str:
    """Numbers with their spread."""
    mean, spread = mean_and_spread(values)
    return f"{mean:.2f}" if spread is None else f"{mean:.2f} ± {spread:.2f}"


def of(results: Sequence[Result], system: str, variant: str) -> list[Result]:
    """The results of a variant, one for each seed, in the seeds' order."""
    found = [result for result in results if (result["system"], result["variant"]) == (system, variant)]
    return sorted(found, key=lambda result: int(result["seed"]))


def same_seeds(results: Sequence[Result], system: str, variant: str, beside: str) -> tuple[list[Result], list[Result]]:
    """The results of two variants, as :func:`of` gives them, for the seeds that both have."""
    changed, compared = of(results, system, variant), of(results, system, beside)
    seeds = {result["seed"] for result in changed} & {result["seed"] for result in compared}
    return [result for result in changed if result["seed"] in seeds], [
        result for result in compared if result["seed"] in seeds
    ]


def other_starts(changed: Sequence[Result], compared: Sequence[Result]) -> list[int]:
    """Seeds at which two variants began from cold starts whose greedy episodes are graded differently.

    A cold start is made by the first cell that runs, and a recipe may have changed since: such a pair differs by more
    than its key. Pairs that differ on purpose or whose grades aren't known are left out.
    """
    pairs = zip(changed, compared, strict=True)
    grades = [[result["stages"]["sft"].get("greedy", {}).get("answers") for result in pair] for pair in pairs]
    differ = (None not in pair and pair[0] != pair[1] for pair in grades)
    return [
        result["seed"] for result, other in zip(changed, differ, strict=True) if other and not result.get("cold_start")
    ]


def figures(found: Sequence[Result], stage: str, kind: str, key: str) -> list[float]:
    """One figure of a stage, by seed."""
    return [result["stages"][stage][kind][key] for result in found if stage in result["stages"]]


def points(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """Gains of shares, seed by seed, in points of a percent."""
    return [100 * (late - early) for early, late in zip(before, after, strict=True)]


def signed(values: Sequence[float], errors: Sequence[float | None] | None = None) -> str:
    """Gains in a row, each with its standard error where that is known."""
    return ", ".join(
        f"{value:+.1f}" + ("" if error is None else f" ({error:.1f})")
        for value, error in zip(values, errors or [None] * len(values), strict=True)
    )


def gained(before: Sequence[Result], early: str, after: Sequence[Result], late: str, kind: str) -> str:
    """Gains of accuracy from one stage to another, seed by seed, in points of a percent, each with its standard error
    over the questions that both answered where their grades are known."""
    errors: list[float | None] = []
    for result, other in zip(before, after, strict=True):
        first, last = result["stages"][early][kind].get("answers"), other["stages"][late][kind].get("answers")
        # each question is about another video
        known = first is not None and last is not None
        errors.append(clustered_error(points(first, last), range(len(first))) if known else None)
    shares = (figures(found, stage, kind, "accuracy") for found, stage in ((before, early), (after, late)))
    return signed(points(*shares), errors)


def distinct(results: Sequence[Result], *keys: str) -> list[tuple[str, ...]]:
    """Combinations of some fields, in the order in which they occur."""
    return list(dict.fromkeys(tuple(result[key] for key in keys) for result in results))


def stage_table(results: Sequence[Result]) -> str:
    """Every stage of every chain, and the gain of GRPO over SFT."""
    rows = []
    for system in dict.fromkeys(result["system"] for result in results):
        found = of(results, system, "chain")
        for stage in STAGES:
            if not (sampled := figures(found, stage, "sampled", "accuracy")):
                continue
            greedy = percent(figures(found, stage, "greedy", "accuracy"))
            gain = gained(found, "sft", found, stage, "sampled") if stage == "grpo" else ""
            calls = plain(figures(found, stage, "sampled", "tool_calls"))
            rows.append([system, TITLES[stage], str(len(found)), percent(sampled), greedy, gain, calls])
    head = ["system", "after", "seeds", "sampled %", "greedy %", "GRPO less SFT (s.e.)", "calls"]
    return table(head, rows)


def class_table(results: Sequence[Result]) -> str:
    """Calls by class of question, before and after GRPO."""
    rows = []
    for (system,) in distinct(results, "system"):
        found = of(results, system, "chain")
        for stage in ("sft", "grpo") if found else ():
            calls = [result["stages"][stage]["sampled"]["calls"] for result in found]
            asked = [name if all(name in by for by in calls) else "" for name in CLASSES]
            rows.append([system, TITLES[stage], *(plain([by[name] for by in calls]) if name else "" for name in asked)])
    return table(["system", "after", *CLASSES], rows)


def search_table(results: Sequence[Result]) -> str:
    """Each system in the world that must be searched: accuracy from the cold start to GRPO's end."""
    rows = []
    for system, variant in dict.fromkeys((each["system"], each["variant"]) for each in results if is_search(each)):
        found = of(results, system, variant)
        first = "sft" if found[0]["stages"].get("sft", {}).get("greedy") else "kto"
        shares = [
            " to ".join(percent(figures(found, stage, kind, "accuracy")) for stage in (first, "grpo"))
            for kind in ("greedy", "sampled")
        ]
        seen = [each["stages"]["grpo"]["sampled"]["searched"]["found"] for each in found]
        rows.append([system, variant, str(len(found)), *shares, gained(found, "sft", found, "grpo", "sampled")])
        rows[-1].append(percent([share for share in seen if share is not None]))
    head = ["system", "trained with", "seeds", "greedy %", "sampled %", "sampled gain by seed (s.e.)", "finds %"]
    return table(head, rows)


def claim_table(results: Sequence[Result]) -> str:
    """Each claim: the changed chain and the one it is compared with, on the same seeds."""
    rows = []
    claims = [each for each in results if each["variant"] != "chain" and each["claim"]]
    for system, variant, beside in dict.fromkeys((each["system"], each["variant"], each["beside"]) for each in claims):
        changed, compared = same_seeds(results, system, variant, beside)
        if not changed:
            continue
        shares = [percent(figures(found, "grpo", "sampled", "accuracy")) for found in (changed, compared)]
        calls = [plain(figures(found, "grpo", "sampled", "tool_calls")) for found in (changed, compared)]
        odd = [share for share in (illogical(found, "grpo") for found in (changed, compared)) if share]
        by_seed = gained(compared, "grpo", changed, "grpo", "sampled")
        apart = ", ".join(map(str, other_starts(changed, compared)))
        title = f"{variant} (seed {apart}: another cold start)" if apart else variant
        rows.append([system, title, beside, " / ".join(shares), by_seed, " / ".join(calls), " / ".join(odd)])
    head = ["system", "changed", "compared with", "sampled %", "by seed (s.e.)", "calls", "illogical %"]
    return table(head, rows)


def soon_table(results: Sequence[Result]) -> str:
    """Number of steps after which the looks of training follow the arrows."""
    rows = []
    for system, variant in distinct(list(filter(is_search, results)), "system", "variant"):
        found = of(results, system, variant)
        seeds = ", ".join(str(result["seed"]) for result in found)
        reached = (", ".join(step_of_most(result["searched"].get(key)) for result in found) for key in SOON)
        rows.append([system, variant, seeds, *reached])
    return table(["system", "trained with", "seeds", *(SEARCHED[key] for key in SOON)], rows)


def step_of_most(curve: Sequence[Sequence[float]] | None) -> str:
    """The first step at which the moving average of a share is at least :data:`MOST`; "-" if there is none."""
    steps, values = curve or ((), ())
    reached = (step for step, share in zip(steps, smooth(values), strict=True) if share >= MOST)
    return str(next(reached, "-"))


def is_search(result: Result) -> bool:
    """Return True for a result of the world that must be searched."""
    return bool(result["variant"] == SEARCH or result["variant"].startswith(f"{SEARCH}-"))


def illogical(found: Sequence[Result], stage: str) -> str:
    """Percent of episodes that fail FrameThinker's consistency check; empty for other systems."""
    shares = [result["stages"][stage]["sampled"].get("illogical") for result in found]
    return "" if None in shares else percent([share for share in shares if share is not None])


def budget_table(results: Sequence[Result]) -> str:
    """Accuracy under other budgets of evaluation."""
    rows = []
    results = [result for result in results if result["budgets"]]
    for system, variant, beside in distinct(results, "system", "variant", "beside"):
        measured = of(results, system, variant)
        for budget in dict.fromkeys(budget for result in measured for budget in result["budgets"]):
            having = [result for result in results if budget in result["budgets"]]
            found, pairs = of(having, system, variant), same_seeds(having, system, variant, beside)
            changed, compared = ([result["budgets"][budget]["accuracy"] for result in side] for side in pairs)
            by_seed = signed(points(compared, changed)) if variant != beside else ""
            accuracy = percent([result["budgets"][budget]["accuracy"] for result in found])
            rows.append([system, variant, budget, str(len(found)), accuracy, by_seed])
    return table(["system", "trained with", "evaluated with", "seeds", "accuracy %", "points, by seed"], rows)


def draw(results: Sequence[Result], system: str, file: Path) -> bool:
    """Draw reward, calls and frames by GRPO step: a line for each variant, its mean over seeds; False without any."""
    variants = dict.fromkeys(result["variant"] for result in results if result["system"] == system)
    found = {variant: of(results, system, variant) for variant in variants if not variant.startswith(SEARCH)}
    return draw_lines(found, "curves", PICTURED, f"{system}, mean over seeds", file)


def draw_search(results: Sequence[Result], file: Path) -> bool:
    """Draw how the systems learn to search, by GRPO step: a line for each, its mean over seeds; False without any."""
    systems = dict.fromkeys(result["system"] for result in results if result["variant"] == SEARCH)
    found = {system: of(results, system, SEARCH) for system in systems}
    return draw_lines(found, "searched", SEARCHED, "sampled training episodes, mean over seeds", file)


def draw_lines(
    lines: Mapping[str, Sequence[Result]], curves: str, titles: Mapping[str, str], title: str, file: Path
) -> bool:
    """Draw a panel for each key of the results' curves, with a line for each name; False without any."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    if not lines:
        return False
    columns = min(4, len(lines))
    space = 0.2 * -(-len(lines) // columns)  # inches of the legend below
    width, height = 3 * len(titles) + (3 if len(titles) == 3 else 0), 3.4 + space
    figure, panels = pyplot.subplots(1, len(titles), figsize=(width, height), dpi=110)
    for name, found in lines.items():
        for axes, (key, label) in zip(panels, titles.items(), strict=True):
            known = [result[curves][key] for result in found if key in result[curves]]
            _plot_mean(axes, known, label, f"{name} ({len(found)})")
    figure.suptitle(f"{title} (their number in brackets), moving average over {SMOOTHING} steps", fontsize=10)
    figure.tight_layout(rect=(0, space / height, 1, 1))
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=columns, frameon=False, fontsize=8)
    figure.savefig(file)
    pyplot.close(figure)
    return True


def _plot_mean(axes: Any, curves: Sequence[Sequence[Sequence[float]]], title: str, label: str) -> None:
    """The mean of some curves of steps and values, raw and smoothed."""
    values: dict[float, list[float]] = defaultdict(list)
    for curve in curves:
        for step, value in zip(*curve, strict=True):
            values[step].append(value)
    steps = sorted(values)
    means = [statistics.fmean(values[step]) for step in steps]
    (line,) = axes.plot(steps, smooth(means), linewidth=2, label=label)
    axes.plot(steps, means, linewidth=0.6, alpha=0.4, color=line.get_color())
    axes.set(xlabel="GRPO step", title=title)
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.3)


def finished(out: Path) -> list[dict[str, Any]]:
    """The results of all cells that are done, by name."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(out.glob("cells/*/result.json"))]


def tables(results: Sequence[Result], *, page: bool = False) -> str:
    """All tables that have a row; a page has only those of the comparisons."""
    parts: list[tuple[str, Callable[[Sequence[Result]], str]]] = [
        ("Every stage", stage_table),
        ("Where the event must be searched", search_table),
        ("Ablations", claim_table),
        ("Other budgets", budget_table),
    ]
    if not page:
        parts += [("Calls by class of question", class_table), (f"The step at which {MOST:.0%} follow", soon_table)]
    made = [(title, make(results)) for title, make in parts]
    return "\n\n".join(f"## {title}\n\n{rows}" for title, rows in made if rows) + "\n"


def write_report(out: Path) -> str:
    """Write ``results.json``, ``learning.md`` and a PNG for each system; return the tables."""
    results = finished(out)
    if not results:
        return "nothing is finished yet"
    (out / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    for (system,) in distinct(results, "system"):
        draw(results, system, out / f"{system}.png")
    draw_search(results, out / "search.png")
    text = tables(results)
    (out / "learning.md").write_text(text, encoding="utf-8")
    return text


def merged(file: Path, out: Path) -> list[dict[str, Any]]:
    """Put finished results into a JSON file; return all of it.

    Results of the file whose cell isn't in ``out`` stay: they were made elsewhere.
    """
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    by_cell = {each["cell"]: each for each in known}
    by_cell |= {each["cell"]: {key: each[key] for key in each if key != "checkpoint"} for each in finished(out)}
    results = [by_cell[name] for name in sorted(by_cell)]
    file.write_text(json.dumps(results, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
    return results


def publish(out: Path, docs: Path) -> None:
    """Put finished results into ``learning.json``, ``learning.md`` (after its marker) and the PNGs of a folder."""
    results = merged(docs / "learning.json", out)
    pictures = []
    for system in dict.fromkeys(each["system"] for each in results):
        if draw(results, system, docs / f"learning-{system}.png"):
            pictures.append(f"![{system}: reward, calls and frames by GRPO step](learning-{system}.png)")
    if draw_search(results, docs / "learning-search.png"):
        pictures.append("![looks, and how many follow the arrows, by GRPO step](learning-search.png)")
    page = docs / "learning.md"
    head, _, _ = page.read_text(encoding="utf-8").partition(MARKER)
    body = "\n\n".join([tables(results, page=True).strip(), "## Curves", *pictures])
    page.write_text(f"{head}{MARKER}\n{body}\n", encoding="utf-8")
