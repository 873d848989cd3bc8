"""The tables of docs/planner.md are what the planner says. ``python -m tests.docs.test_planner`` writes them anew."""

import re
import sys
from collections.abc import Iterator

import pytest

from agentic_video.launch.stage import with_workers
from agentic_video.planning.memory import GIB
from agentic_video.planning.plan import Plan
from agentic_video.planning.report import plan_of
from tests.config.configs import SYSTEMS, composed, set_environment
from tests.docs.tables import REPOSITORY

PAGE = REPOSITORY / "docs" / "planner.md"
PAPERS = [
    *((name, 16) for name in SYSTEMS),
    ("framethinker", 8),
    ("framemind", 8),
    ("videobrain", 8),
    ("eva", 32),
    ("videozoomer", 8),
]


def row(name: str, of: str, plan: Plan, *, pixels: bool = False) -> str:
    """A row of a table: GiB of each phase, sequences, main memory, verdict."""
    moved = sum(hop.bytes for hop in plan.hops if "TransferQueue" in hop.name)
    cells = [
        f"`{name}`",
        of,
        *(f"{phase.total / GIB:.0f} GiB" for phase in plan.gpu),
        f"{plan.engine.typical:.0f} of {plan.engine.wanted}",
        *([f"{moved / 1e9:,.0f} GB"] if pixels else []),
        f"{plan.host[1].total / GIB:.0f} GiB",
        plan.verdict,
    ]
    return f"| {' | '.join(cells)} |"


def rows() -> Iterator[tuple[str, str]]:
    """(table, row) of everything that the page has to say."""
    for name, gpus in PAPERS:
        config = with_workers(composed(name, "cluster"), gpus // 8, 64, ())  # as the command has them
        yield "PAPERS", row(name, str(gpus), plan_of(config, gpus), pixels=True)
    for name in SYSTEMS:
        for memory in (24, 48, 80):
            plan = plan_of(composed(name, "cluster", "+profile=single"), gpu_gib=memory, host_gib=64)
            yield "SINGLE", row(name, f"{memory} GiB", plan)
        plan = plan_of(composed(name, "cluster", "+profile=four"), host_gib=512)
        yield "FOUR", row(name, "4", plan)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


@pytest.mark.slow
def test_the_tables_are_the_planner_s() -> None:
    written = re.findall(r"^\| `\w+` \|.*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(written) == sorted(line for _, line in rows())


def test_what_videozoomer_takes_unfused() -> None:
    plan = plan_of(composed("videozoomer", "cluster", "actor_rollout_ref.model.use_fused_kernels=False"), 16)
    assert f"`actor_rollout_ref.model.use_fused_kernels=False` an update takes {plan.gpu[0].total / GIB:.0f} GiB" in (
        " ".join(PAGE.read_text(encoding="utf-8").split())
    )


def main() -> int:
    """Put the rows into the page, in place of those that are there."""
    with pytest.MonkeyPatch.context() as patch:
        set_environment(patch)
        made = list(rows())
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
