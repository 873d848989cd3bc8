"""The planner's tables, in docs/planner.md and a short one in docs/cluster.md, are what it says.

``python -m tests.docs.test_planner`` writes them anew.
"""

import re
import sys
from collections.abc import Iterator

import pytest

from agentic_video.launch.stage import with_workers
from agentic_video.planning.plan import Plan
from agentic_video.planning.report import plan_of
from agentic_video.utils.units import GIB
from tests.config.configs import SYSTEMS, composed, set_environment
from tests.docs.tables import REPOSITORY, TITLES, section_of

PAGE = REPOSITORY / "docs" / "planner.md"
CLUSTER = REPOSITORY / "docs" / "cluster.md"
MEMORIES = (24, 48, 80)
PAPERS = [
    *((name, 16) for name in SYSTEMS if name != "paravt"),  # 56 rollouts can't be shared by 16
    ("framethinker", 8),
    ("framemind", 8),
    ("videobrain", 8),
    ("paravt", 8),
    ("eva", 32),
    ("videoo3", 8),
    ("videozoomer", 8),
]


SHORT = rf"^\| (?:{'|'.join(TITLES.values())}) \|.*\|$"


def row(name: str, of: str, plan: Plan, *, pixels: bool = False) -> str:
    """A row of a table: GiB of each phase, sequences, main memory, verdict."""
    cells = [
        f"`{name}`",
        of,
        *(f"{phase.total / GIB:.0f} GiB" for phase in plan.gpu),
        f"{plan.engine.typical:.0f} of {plan.engine.wanted}",
        *([gigabytes(moved) for moved in moved_bytes(plan)] if pixels else []),
        f"{plan.host[1].total / GIB:.0f} GiB",
        plan.verdict,
    ]
    return f"| {' | '.join(cells)} |"


def moved_bytes(plan: Plan) -> tuple[float, float, float]:
    """Bytes of pixels that engines and the trainer fetch, all through TransferQueue, and these with stock verl."""
    fetched = ("frame stores to engines", "frame stores to the trainer, at most")
    queued, stock = (
        sum(hop.bytes for hop in hops if "TransferQueue" in hop.name) for hops in (plan.hops, plan.stock_hops)
    )
    return sum(hop.bytes for hop in plan.hops if hop.name in fetched), queued, stock


def gigabytes(size: float) -> str:
    """Bytes as GB, the small ones to a tenth."""
    return f"{size / 1e9:,.0f} GB" if size >= 10e9 else f"{size / 1e9:.1f} GB"


def papers(name: str, gpus: int) -> Plan:
    """A paper's settings, as the command has them."""
    return plan_of(with_workers(composed(name, "cluster"), gpus // 8, 64, ()), gpus)


def single(name: str, memory: int) -> Plan:
    """A recipe on one GPU of so many GiB."""
    return plan_of(composed(name, "cluster", "+profile=single"), gpu_gib=memory, host_gib=64)


def short_rows() -> Iterator[str]:
    """The rows of the cluster's page: verdicts, and GiB of a GPU's fullest phase."""
    for name in SYSTEMS:
        plans = [papers(name, 16), *(single(name, memory) for memory in MEMORIES)]
        full = [max(phase.total for phase in plan.gpu) / GIB for plan in plans]
        said = [f"{plan.verdict} ({size:.0f} GiB)" for plan, size in zip(plans, full, strict=True)]
        yield f"| {TITLES[name]} | {' | '.join(said)} |"


def rows() -> Iterator[tuple[str, str]]:
    """(table, row) of everything that the page has to say."""
    for name, gpus in PAPERS:
        yield "PAPERS", row(name, str(gpus), papers(name, gpus), pixels=True)
    for name in SYSTEMS:
        for memory in MEMORIES:
            yield "SINGLE", row(name, f"{memory} GiB", single(name, memory))
        plan = plan_of(composed(name, "cluster", "+profile=four"), host_gib=512)
        yield "FOUR", row(name, "4", plan)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


@pytest.mark.slow
def test_the_tables_are_the_planner_s() -> None:
    written = re.findall(r"^\| `\w+` \|.*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(written) == sorted(line for _, line in rows())


@pytest.mark.slow
def test_the_cluster_s_table_is_the_planner_s() -> None:
    written = section_of(CLUSTER.read_text(encoding="utf-8"), "## Plan")
    assert re.findall(SHORT, written, re.MULTILINE) == list(short_rows())


def main() -> int:
    """Put the rows into the page, in place of those that are there."""
    with pytest.MonkeyPatch.context() as patch:
        set_environment(patch)
        made, short = list(rows()), list(short_rows())
    lines = PAGE.read_text(encoding="utf-8").split("\n")
    tables = iter([[line for table, line in made if table == name] for name in ("PAPERS", "SINGLE", "FOUR")])
    kept: list[str] = []
    for line in lines:
        if re.match(r"\| `\w+` \||TABLE_", line):
            continue
        kept.append(line)
        if line.startswith("|---") and kept[-2].startswith("| recipe "):
            kept += next(tables)
    PAGE.write_text("\n".join(kept), encoding="utf-8")
    page = CLUSTER.read_text(encoding="utf-8")
    before, plan, after = page.partition(section_of(page, "## Plan"))
    lines = [line for line in plan.split("\n") if not re.match(SHORT, line)]
    place = next(number for number, line in enumerate(lines) if line.startswith("|---")) + 1
    CLUSTER.write_text(before + "\n".join(lines[:place] + short + lines[place:]) + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
