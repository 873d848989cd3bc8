"""The planner's tables, in docs/planner.md and a short one in docs/cluster.md, are its own output.

``python -m tests.docs.test_planner`` writes them again.
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
    *((name, 8) for name in ("framethinker", "framemind", "videobrain", "paravt")),
    ("eva", 32),
    ("videoo3", 8),
    ("videozoomer", 8),
]
TABLES = ("PAPERS", "SINGLE", "FOUR")
SHORT = rf"^\| (?:{'|'.join(TITLES.values())}) \|.*\|$"


def cells(name: str, of: str, *plans: Plan, pixels: bool = False) -> str:
    """A row of each plan: GiB of phases, sequences, of papers bytes of pixels and seconds, main memory, verdict."""

    def each(values: Iterator[str]) -> str:
        return ", ".join(dict.fromkeys(values))

    phases = zip(*(plan.gpu for plan in plans), strict=True)
    row = [
        f"`{name}`",
        of,
        *(f"{each(f'{phase.total / GIB:.0f}' for phase in same)} GiB" for same in phases),
        each(f"{plan.engine.typical:.0f} of {plan.engine.wanted}" for plan in plans),
        *([gigabytes(moved) for moved in moved_bytes(plans[0])] if pixels else []),
        f"{plans[0].host[1].total / GIB:.0f} GiB",
        *([f"{plans[0].seconds.training:.0f} of {plans[0].seconds.total:.0f} s"] if pixels else []),
        each(plan.verdict for plan in plans),
    ]
    return f"| {' | '.join(row)} |"


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


def single(name: str) -> list[Plan]:
    """A recipe on one GPU, by its memory."""
    config = composed(name, "cluster", "+profile=single")
    return [plan_of(config, gpu_gib=memory, host_gib=64) for memory in MEMORIES]


def short_rows() -> Iterator[str]:
    """The rows of the cluster's page: verdicts, and GiB of a GPU's fullest phase."""
    for name in SYSTEMS:
        plans = [papers(name, 16), *single(name)]
        full = [max(phase.total for phase in plan.gpu) / GIB for plan in plans]
        verdicts = [f"{plan.verdict} ({size:.0f} GiB)" for plan, size in zip(plans, full, strict=True)]
        yield f"| {TITLES[name]} | {' | '.join(verdicts)} |"


def rows() -> Iterator[tuple[str, str]]:
    """(table, row) of the planner's page."""
    for name, gpus in PAPERS:
        yield "PAPERS", cells(name, str(gpus), papers(name, gpus), pixels=True)
    for name in SYSTEMS:
        yield "SINGLE", cells(name, "1", *single(name))
        yield "FOUR", cells(name, "4", plan_of(composed(name, "cluster", "+profile=four"), host_gib=512))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


@pytest.mark.slow
def test_the_planner_page_s_tables_are_up_to_date() -> None:
    written = re.findall(r"^\| `\w+` \|.*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(written) == sorted(line for _, line in rows())


@pytest.mark.slow
def test_the_cluster_page_s_table_is_up_to_date() -> None:
    written = section_of(CLUSTER.read_text(encoding="utf-8"), "## Plan")
    assert re.findall(SHORT, written, re.MULTILINE) == list(short_rows())


def with_rows(lines: list[str], pattern: str, tables: list[list[str]]) -> list[str]:
    """A page whose rows of a pattern are those of its tables, in order."""
    kept: list[str] = []
    for line in (line for line in lines if not re.match(pattern, line)):
        kept.append(line)
        if tables and line.startswith("|---") and re.match(r"\| (recipe )?\| (GPUs|16 GPUs)", kept[-2]):
            kept += tables.pop(0)
    return kept


def main() -> int:
    """Write the rows into the pages."""
    with pytest.MonkeyPatch.context() as patch:
        set_environment(patch)
        made, short = list(rows()), list(short_rows())
    tables = [[line for table, line in made if table == name] for name in TABLES]
    for page, pattern, of_page in ((PAGE, r"\| `\w+` \|", tables), (CLUSTER, SHORT, [short])):
        lines = page.read_text(encoding="utf-8").split("\n")
        page.write_text("\n".join(with_rows(lines, pattern, of_page)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
