"""Tables and curves of what :mod:`benchmarks.learning.run` has finished so far."""

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentic_video.report.summary import SMOOTHING, smooth
from agentic_video.utils.standard_error import clustered_error

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
"""Figures of :class:`agentic_video.toyworld.search_report.SearchSummary` in the plot: looks, then shares."""

MOST = 0.8
"""Of looks and episodes, where a system has learnt to search."""
SOON = ("first_follows", "second_follows", "found")
"""Of :data:`SEARCHED`, those that tell how soon that is."""

SEARCH = "search"
"""The variant of each system in the world that must be searched; what changes one of its keys begins with it, too."""

CLASSES = ("active", "adaptive", "direct")
"""What a question needs (see :data:`agentic_video.types.row.QuestionClass`)."""

MARKER = "<!-- results -->"
"""What follows it in the page is made by :func:`publish`."""

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


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; empty without rows."""
    if not rows:
        return ""
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def of(results: Sequence[Result], system: str, variant: str) -> list[Result]:
    """The results of a variant, one for each seed, in the seeds' order."""
    found = [one for one in results if (one["system"], one["variant"]) == (system, variant)]
    return sorted(found, key=lambda one: int(one["seed"]))


def same_seeds(results: Sequence[Result], system: str, variant: str, beside: str) -> tuple[list[Result], list[Result]]:
    """The results of two variants, as :func:`of` gives them, for the seeds that both have."""
    changed, compared = of(results, system, variant), of(results, system, beside)
    seeds = {one["seed"] for one in changed} & {one["seed"] for one in compared}
    return [one for one in changed if one["seed"] in seeds], [one for one in compared if one["seed"] in seeds]


def other_starts(changed: Sequence[Result], compared: Sequence[Result]) -> list[int]:
    """The seeds at which two variants began from cold starts whose likeliest episodes are graded differently.

    A cold start is made by whoever runs a cell first, and a recipe may have changed since: such a pair differs by more
    than its key. Those that differ on purpose, or whose grades aren't known, aren't among them.

    Args:
        changed: Results by seed.
        compared: Results of the same seeds.
    """
    pairs = zip(changed, compared, strict=True)
    grades = [[one["stages"]["sft"].get("greedy", {}).get("answers") for one in pair] for pair in pairs]
    differ = (None not in pair and pair[0] != pair[1] for pair in grades)
    return [one["seed"] for one, other in zip(changed, differ, strict=True) if other and not one.get("cold_start")]


def figures(found: Sequence[Result], stage: str, kind: str, key: str) -> list[float]:
    """One figure of a stage, by seed."""
    return [one["stages"][stage][kind][key] for one in found if stage in one["stages"]]


def points(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """What shares gained, seed by seed, in points of a percent."""
    return [100 * (late - early) for early, late in zip(before, after, strict=True)]


def signed(values: Sequence[float], errors: Sequence[float | None] | None = None) -> str:
    """Gains in a row, each with its standard error where that is known."""
    return ", ".join(
        f"{value:+.1f}" + ("" if error is None else f" ({error:.1f})")
        for value, error in zip(values, errors or [None] * len(values), strict=True)
    )


def gained(before: Sequence[Result], early: str, after: Sequence[Result], late: str, kind: str) -> str:
    """What accuracy gained from one stage to another, seed by seed, in points of a percent.

    Args:
        before: Results by seed.
        early: Their stage.
        after: Results of the same seeds.
        late: Their stage.
        kind: Sampled or greedy.

    Returns:
        The gains, each with its standard error over the questions, which both answered, where their grades are known.
    """
    errors: list[float | None] = []
    for one, other in zip(before, after, strict=True):
        first, last = one["stages"][early][kind].get("answers"), other["stages"][late][kind].get("answers")
        # each question is about another video
        known = first is not None and last is not None
        errors.append(clustered_error(points(first, last), range(len(first))) if known else None)
    shares = (figures(found, stage, kind, "accuracy") for found, stage in ((before, early), (after, late)))
    return signed(points(*shares), errors)


def chain_table(results: Sequence[Result]) -> str:
    """Every stage of every system's chain."""
    rows = []
    for system in dict.fromkeys(one["system"] for one in results):
        found = of(results, system, "chain")
        for stage in STAGES:
            if not figures(found, stage, "sampled", "accuracy"):
                continue
            rows.append(
                [
                    system,
                    TITLES[stage],
                    str(len(found)),
                    percent(figures(found, stage, "sampled", "accuracy")),
                    percent(figures(found, stage, "greedy", "accuracy")),
                    *(
                        plain(figures(found, stage, "sampled", key))
                        for key in ("tool_calls", "frames", "illegal_calls")
                    ),
                ]
            )
    head = [
        "system",
        "after",
        "seeds",
        "accuracy % (sampled)",
        "accuracy % (greedy)",
        "calls",
        "frames",
        "refused calls",
    ]
    return table(head, rows)


def gain_table(results: Sequence[Result]) -> str:
    """What GRPO adds to SFT, and what the chain takes."""
    rows = []
    for system in dict.fromkeys(one["system"] for one in results):
        if found := of(results, system, "chain"):
            gains = points(*(figures(found, stage, "sampled", "accuracy") for stage in ("sft", "grpo")))
            minutes = [(one["seconds"] + sum(one["seconds_before"].values())) / 60 for one in found]
            by_seed = gained(found, "sft", found, "grpo", "sampled")
            rows.append([system, plain(gains), by_seed, ", ".join(f"{minute:.1f}" for minute in minutes)])
    return table(["system", "GRPO less SFT, points", "by seed", "minutes of the chain"], rows)


def class_table(results: Sequence[Result]) -> str:
    """Calls by what a question needs, before and after GRPO."""
    rows = []
    for system in dict.fromkeys(one["system"] for one in results):
        found = of(results, system, "chain")
        for stage in ("sft", "grpo"):
            if calls := [one["stages"][stage]["sampled"]["calls"] for one in found]:
                rows.append(
                    [
                        system,
                        TITLES[stage],
                        *(
                            plain([by[name] for by in calls]) if all(name in by for by in calls) else ""
                            for name in CLASSES
                        ),
                    ]
                )
    return table(["system", "after", *CLASSES], rows)


def ablation_table(results: Sequence[Result]) -> str:
    """Each claim beside what it is compared with, on the same seeds."""
    rows = []
    claims = [one for one in results if one["variant"] != "chain" and one["claim"]]
    for system, variant, beside in dict.fromkeys((one["system"], one["variant"], one["beside"]) for one in claims):
        changed, compared = same_seeds(results, system, variant, beside)
        if not changed:
            continue
        stages = [(beside, compared, "grpo"), (variant, changed, "grpo")]
        if changed[0].get("cold_start"):
            stages.insert(0, (f"{beside}, before GRPO", compared, "sft"))
        by_seed = gained(compared, "grpo", changed, "grpo", "sampled")
        apart = ", ".join(map(str, other_starts(changed, compared)))
        for title, found, stage in stages:
            rows.append(
                [
                    changed[0]["claim"] if found is changed else "",
                    system,
                    f"{title} (seed {apart}: another cold start)" if apart and found is changed else title,
                    str(len(found)),
                    percent(figures(found, stage, "sampled", "accuracy")),
                    by_seed if found is changed else "",
                    *(
                        plain(figures(found, stage, "sampled", key))
                        for key in ("tool_calls", "frames", "illegal_calls")
                    ),
                    illogical(found, stage),
                    calls_by_class(found, stage),
                ]
            )
    head = [
        "claim",
        "system",
        "trained with",
        "seeds",
        "accuracy %",
        "points, by seed",
        "calls",
        "frames",
        "refused calls",
        "illogical %",
        "calls by class",
    ]
    return table(head, rows)


def search_table(results: Sequence[Result]) -> str:
    """Before and after GRPO where no demonstration shows how the event is found; then with one key changed."""
    rows = []
    for system, variant in dict.fromkeys((one["system"], one["variant"]) for one in results if is_search(one)):
        found = of(results, system, variant)
        for stage in ("sft", "grpo") if variant == SEARCH else ("kto", "grpo"):
            if stage not in found[0]["stages"]:
                continue
            changed = variant.removeprefix(SEARCH) if stage == "grpo" else ""
            for kind in ("greedy", "sampled"):
                measured = [one["stages"][stage][kind] for one in found]
                rows.append(
                    [
                        system,
                        TITLES[stage] + changed.replace("-", ", ", 1).replace("-", " "),
                        kind,
                        str(len(found)),
                        percent([one["accuracy"] for one in measured]),
                        gained(found, "sft", found, stage, kind) if stage != "sft" else "",
                        plain([one["searched"]["looks"] for one in measured]),
                    ]
                )
                for key in list(SEARCHED)[1:]:
                    known = [one["searched"][key] for one in measured if one["searched"][key] is not None]
                    rows[-1].append(percent(known) if known else "-")
    head = ["system", "after", "episodes", "seeds", "accuracy %", "points, by seed", "looks"]
    return table([*head, "first look follows %", "looks again %", "second look follows %", "found %"], rows)


def soon_table(results: Sequence[Result]) -> str:
    """After how many steps the looks of training follow the arrows: where all end alike, this is what differs."""
    rows = []
    for system, variant in dict.fromkeys((one["system"], one["variant"]) for one in results if is_search(one)):
        found = of(results, system, variant)
        seeds = ", ".join(str(one["seed"]) for one in found)
        reached = (", ".join(step_of_most(one["searched"].get(key)) for one in found) for key in SOON)
        rows.append([system, variant, seeds, *reached])
    return table(["system", "trained with", "seeds", *(SEARCHED[key] for key in SOON)], rows)


def step_of_most(curve: Sequence[Sequence[float]] | None) -> str:
    """The first step at which the moving average of a share is at least :data:`MOST`; "-" if there is none."""
    steps, values = curve or ((), ())
    reached = (step for step, share in zip(steps, smooth(values), strict=True) if share >= MOST)
    return str(next(reached, "-"))


def is_search(one: Result) -> bool:
    """Whether a result is of the world that must be searched."""
    return bool(one["variant"] == SEARCH or one["variant"].startswith(f"{SEARCH}-"))


def illogical(found: Sequence[Result], stage: str) -> str:
    """Percent of episodes that fail FrameThinker's consistency check; empty for other systems."""
    shares = [one["stages"][stage]["sampled"].get("illogical") for one in found]
    return "" if None in shares else percent([share for share in shares if share is not None])


def calls_by_class(found: Sequence[Result], stage: str) -> str:
    """Legal calls per episode for each class of question."""
    by: dict[str, list[float]] = defaultdict(list)
    for one in found:
        for kind, calls in one["stages"][stage]["sampled"]["calls"].items():
            by[kind].append(calls)
    return ", ".join(f"{kind} {statistics.fmean(calls):.2f}" for kind, calls in by.items())


def budget_table(results: Sequence[Result]) -> str:
    """Accuracy under other budgets of evaluation."""
    rows = []
    results = [one for one in results if one["budgets"]]
    for system, variant, beside in dict.fromkeys((one["system"], one["variant"], one["beside"]) for one in results):
        measured = of(results, system, variant)
        for budget in dict.fromkeys(budget for one in measured for budget in one["budgets"]):
            having = [one for one in results if budget in one["budgets"]]
            found, pairs = of(having, system, variant), same_seeds(having, system, variant, beside)
            changed, compared = ([one["budgets"][budget]["accuracy"] for one in side] for side in pairs)
            by_seed = signed(points(compared, changed)) if variant != beside else ""
            accuracy = percent([one["budgets"][budget]["accuracy"] for one in found])
            rows.append([system, variant, budget, str(len(found)), accuracy, by_seed])
    return table(["system", "trained with", "evaluated with", "seeds", "accuracy %", "points, by seed"], rows)


def draw(results: Sequence[Result], system: str, file: Path) -> bool:
    """Reward, calls and frames by GRPO step: a line for each variant, its mean over seeds.

    Returns:
        Whether there was anything to draw. What was trained in the world that must be searched has other rewards:
        see :func:`draw_search`.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    variants = dict.fromkeys(one["variant"] for one in results if one["system"] == system and not is_search(one))
    if not variants:
        return False
    figure, panels = pyplot.subplots(1, len(PICTURED), figsize=(12, 3.4), dpi=110)
    for variant in variants:
        found = of(results, system, variant)
        for axes, (key, title) in zip(panels, PICTURED.items(), strict=True):
            _plot_mean(axes, [one["curves"][key] for one in found], title, f"{variant} ({len(found)})")
    figure.suptitle(
        f"{system}, mean over seeds (their number in brackets), moving average over {SMOOTHING} steps", fontsize=10
    )
    _save_with_legend(figure, panels, file)
    return True


def _plot_mean(axes: Any, curves: Sequence[Sequence[Sequence[float]]], title: str, label: str) -> None:
    """The mean of some curves of steps and values, raw and smoothed."""
    values: dict[float, list[float]] = defaultdict(list)
    for steps_of, values_of in curves:
        for step, value in zip(steps_of, values_of, strict=True):
            values[step].append(value)
    steps = sorted(values)
    means = [statistics.fmean(values[step]) for step in steps]
    (line,) = axes.plot(steps, smooth(means), linewidth=2, label=label)
    axes.plot(steps, means, linewidth=0.6, alpha=0.4, color=line.get_color())
    axes.set(xlabel="GRPO step", title=title)
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.3)


def _save_with_legend(figure: Any, panels: Sequence[Any], file: Path) -> None:
    """Save a picture whose panels have the same lines, named below them."""
    from matplotlib import pyplot

    lines, labels = panels[0].get_legend_handles_labels()
    columns = min(4, len(labels))
    space = 0.2 * -(-len(labels) // columns)  # inches
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + space)
    figure.tight_layout(rect=(0, space / (height + space), 1, 1))
    figure.legend(lines, labels, loc="lower center", ncols=columns, frameon=False, fontsize=8)
    figure.savefig(file)
    pyplot.close(figure)


def draw_search(results: Sequence[Result], file: Path) -> bool:
    """How the systems learn to search, by GRPO step: a line for each, its mean over seeds.

    Returns:
        Whether there was anything to draw.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    systems = list(dict.fromkeys(one["system"] for one in results if one["variant"] == SEARCH))
    if not systems:
        return False
    figure, panels = pyplot.subplots(1, len(SEARCHED), figsize=(15, 3.4), dpi=110)
    for system in systems:
        found = of(results, system, SEARCH)
        for axes, (key, title) in zip(panels, SEARCHED.items(), strict=True):
            curves = [one["searched"][key] for one in found if key in one["searched"]]
            _plot_mean(axes, curves, title, f"{system} ({len(found)})")
    figure.suptitle(
        f"sampled training episodes, mean over seeds (in brackets), moving average over {SMOOTHING} steps", fontsize=10
    )
    _save_with_legend(figure, panels, file)
    return True


def finished(out: Path) -> list[dict[str, Any]]:
    """The results of all cells that are done, by name."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(out.glob("cells/*/result.json"))]


def tables(results: Sequence[Result]) -> str:
    """All tables that have a row."""
    parts: list[tuple[str, Callable[[Sequence[Result]], str]]] = [
        ("Every stage", chain_table),
        ("What GRPO adds", gain_table),
        ("Calls by class of question", class_table),
        ("Where the event must be searched", search_table),
        (f"The step at which {MOST:.0%} follow", soon_table),
        ("Ablations", ablation_table),
        ("Other budgets", budget_table),
    ]
    made = [(title, make(results)) for title, make in parts]
    return "\n\n".join(f"## {title}\n\n{rows}" for title, rows in made if rows) + "\n"


def write_report(out: Path) -> str:
    """Write ``results.json``, ``learning.md`` and a PNG for each system.

    Returns:
        The tables.
    """
    results = finished(out)
    if not results:
        return "nothing is finished yet"
    (out / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    for system in dict.fromkeys(one["system"] for one in results):
        draw(results, system, out / f"{system}.png")
    draw_search(results, out / "search.png")
    text = tables(results)
    (out / "learning.md").write_text(text, encoding="utf-8")
    return text


def publish(out: Path, docs: Path) -> None:
    """Put what is finished into ``learning.json``, ``learning.md`` (after its marker) and the PNGs of a folder.

    Results of ``learning.json`` whose cell isn't in ``out`` stay: they were made elsewhere.
    """
    file = docs / "learning.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    merged = {one["cell"]: one for one in known}
    merged |= {one["cell"]: {key: value for key, value in one.items() if key != "checkpoint"} for one in finished(out)}
    results = [merged[name] for name in sorted(merged)]
    file.write_text(json.dumps(results, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
    pictures = []
    for system in dict.fromkeys(one["system"] for one in results):
        if draw(results, system, docs / f"learning-{system}.png"):
            pictures.append(f"![{system}: reward, calls and frames by GRPO step](learning-{system}.png)")
    if draw_search(results, docs / "learning-search.png"):
        pictures.append("![looks, and how many follow the arrows, by GRPO step](learning-search.png)")
    page = docs / "learning.md"
    head, _, _ = page.read_text(encoding="utf-8").partition(MARKER)
    body = "\n\n".join([tables(results).strip(), "## Curves", *pictures])
    page.write_text(f"{head}{MARKER}\n{body}\n", encoding="utf-8")
