"""The plan as text."""

from pathlib import Path

from agentic_video.launch.reproduce.chain import read_chain
from agentic_video.launch.reproduce.plan import cost_of, plan_text
from agentic_video.launch.reproduce.reproduction import ReproduceOptions, Reproduction
from agentic_video.launch.reproduce.state import State
from tests.config.configs import RECIPES
from tests.launch.reproduce.chains import STAGES, reproduction


def test_a_stage_s_lines(tmp_path: Path) -> None:
    rows = {**STAGES[0], "source": "section 4", "cost": "an hour", "laptop": {"left_out": "why not"}}
    assert plan_text(reproduction(tmp_path, rows), []).splitlines()[4:7] == [
        "stages:",
        "   1. rows [left out]: rows of the data (section 4)",
        "      why not",
    ]
    out = tmp_path / "out"
    assert plan_text(reproduction(tmp_path, rows, mode="paper"), ["a: not there"]).splitlines()[-10:] == [
        "stages:",
        "   1. rows [run]: rows of the data (section 4)",
        f"      $ agentic-video copy {tmp_path}/data/raw/rows.json {out}/rows/rows.jsonl",
        "      cost: the paper: an hour",
        f"   2. table [always]: {out}/table.md",
        "",
        "cost: of stages without a line of it above, time and memory are not measured",
        "",
        "missing (1):",
        "  - a: not there",
    ]


def test_what_grpo_costs(tmp_path: Path) -> None:
    """What the planner computes, with the number of steps where the number of rows is published."""
    for name, least in (("framemind", "118 steps, so at least "), ("videozoomer", "; the paper: 16 H100")):
        chain = read_chain(RECIPES / name, "paper")
        made = Reproduction(chain, ReproduceOptions(tmp_path, tmp_path), State(tmp_path))
        said = cost_of(made, chain.stage("grpo"))
        assert said.startswith("computed, not measured: ") and " GPUs of 80 GiB, of which " in said and least in said
        assert cost_of(made, chain.stages[0]) == ""


def test_a_rehearsal_s_cost_is_what_was_measured(tmp_path: Path) -> None:
    assert "\ncost: time and memory are not measured\n" in plan_text(reproduction(tmp_path), [])
    assert "\ncost: a minute\n" in plan_text(reproduction(tmp_path, toyworld={"took": "a minute"}), [])
    chain = read_chain(RECIPES / "videozoomer", "laptop")
    small = Reproduction(chain, ReproduceOptions(tmp_path, tmp_path), State(tmp_path))
    assert "16 H100" not in plan_text(small, [])
