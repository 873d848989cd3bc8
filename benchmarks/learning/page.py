"""The tables and pictures of docs/learning.md, shorter than the report's: a row for each comparison."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.learning.report import (
    STAGES,
    TITLES,
    Result,
    budget_table,
    draw,
    draw_search,
    figures,
    finished,
    gained,
    illogical,
    is_search,
    of,
    percent,
    plain,
    same_seeds,
)
from benchmarks.tables import table

MARKER = "<!-- results -->"
"""The page's line after which :func:`publish` writes."""


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
        rows.append([system, variant, beside, " / ".join(shares), by_seed, " / ".join(calls), " / ".join(odd)])
    head = ["system", "changed", "compared with", "sampled %", "by seed (s.e.)", "calls", "illogical %"]
    return table(head, rows)


def page_tables(results: Sequence[Result]) -> str:
    """All tables of the page that have a row."""
    parts: list[tuple[str, Callable[[Sequence[Result]], str]]] = [
        ("Every stage", stage_table),
        ("Where the event must be searched", search_table),
        ("Ablations", claim_table),
        ("Other budgets", budget_table),
    ]
    made = [(title, make(results)) for title, make in parts]
    return "\n\n".join(f"## {title}\n\n{rows}" for title, rows in made if rows)


def publish(out: Path, docs: Path) -> None:
    """Put finished results into ``learning.json``, ``learning.md`` (after its marker) and the PNGs of a folder.

    Results of ``learning.json`` whose cell isn't in ``out`` stay: they were made elsewhere.
    """
    file = docs / "learning.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    merged = {each["cell"]: each for each in known}
    merged |= {each["cell"]: {key: each[key] for key in each if key != "checkpoint"} for each in finished(out)}
    results = [merged[name] for name in sorted(merged)]
    file.write_text(json.dumps(results, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
    pictures = []
    for system in dict.fromkeys(each["system"] for each in results):
        if draw(results, system, docs / f"learning-{system}.png"):
            pictures.append(f"![{system}: reward, calls and frames by GRPO step](learning-{system}.png)")
    if draw_search(results, docs / "learning-search.png"):
        pictures.append("![looks, and how many follow the arrows, by GRPO step](learning-search.png)")
    page = docs / "learning.md"
    head, _, _ = page.read_text(encoding="utf-8").partition(MARKER)
    body = "\n\n".join([page_tables(results), "## Curves", *pictures])
    page.write_text(f"{head}{MARKER}\n{body}\n", encoding="utf-8")
