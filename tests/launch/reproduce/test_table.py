"""The table of a reproduction."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentic_video.launch.reproduce.chain import Row
from agentic_video.launch.reproduce.table import numbers_of, table_text, write_table
from tests.docs.tables import rows_of
from tests.launch.reproduce.chains import STAGES, chain_of, reproduction


def report(mean: float | None, **more: Any) -> dict[str, Any]:
    return {
        "asked": 100,
        "episodes": 100,
        "official": {"mean": mean, "error": 0.05, "episodes": 100},
        "official_unplayed_wrong": mean,
        "per_episode": {"frames": {"mean": 80.04}},
        "suites": {},
        **more,
    }


def test_beside_the_published_numbers(tmp_path: Path) -> None:
    chain = chain_of(tmp_path, mode="paper")
    text = table_text(
        chain,
        [
            (Row("mlvu_dev", "VideoZoomer"), report(0.65)),
            (Row("lvbench", "VideoZoomer"), None),
            (Row("mine", "VideoZoomer"), report(0.5)),
        ],
    )
    assert "synthetic" not in text
    assert rows_of(text) == [
        # 68.8 in Table 1 of the paper
        [
            "mlvu_dev",
            "VideoZoomer",
            "65.0",
            "5.0",
            "80.0",
            "68.8",
            "-3.8",
            "-",
            "Table 1",
            "the text of section 4.2 says 66.8",
        ],
        ["lvbench", "VideoZoomer", "not played", "", "", "41.5", "-", "-", "Table 1", ""],
        ["mine", "VideoZoomer", "50.0", "5.0", "80.0", "-", "-", "-", "", "no published number"],
    ]


def test_what_was_not_played_counts_as_wrong(tmp_path: Path) -> None:
    unplayed = report(0.65, asked=130, official_unplayed_wrong=0.5, suites={"mlvu": {"M-Avg": 0.61, "x": 0.1}})
    text = table_text(chain_of(tmp_path, mode="paper"), [(Row("lvbench", "VideoZoomer"), unplayed)])
    ((_, _, own, _, _, published, gap, _, _, note),) = rows_of(text)
    assert (own, published, gap, note) == ("50.0", "41.5", "+8.5", "30 of 130 not played; M-Avg 61.0")


def test_a_rehearsal_s_table_has_no_published_number(tmp_path: Path) -> None:
    rows = [(Row("after SFT", figure=67.3), report(0.5)), (Row("after GRPO"), report(None)), (Row("mlvu_dev"), None)]
    skipped = {"name": "skipped", "about": "a", "laptop": {"left_out": "why"}}
    text = table_text(chain_of(tmp_path, *STAGES, skipped, toyworld={"figures": "docs/learning.md"}), rows)
    assert "Not rehearsed, as the plan says why: skipped.\n" in text
    assert "**No figure here is the paper's" in text and "docs/learning.md" in text
    assert rows_of(text) == [
        ["after SFT", "50.0", "5.0", "100", "67.3"],
        ["after GRPO", "-", "5.0", "100", "-"],
        ["mlvu_dev", "not played", "", "", "-"],
    ]


def test_which_published_numbers() -> None:
    """Not those of other papers, other models or a limited number of calls."""
    assert [one.accuracy for one in numbers_of("VideoZoomer", Row("mlvu_dev", "VideoZoomer"))] == [68.8]
    both = [56.1, 46.8]
    assert [one.accuracy for one in numbers_of("FrameThinker", Row("video_holmes", "FrameThinker"))] == both
    only = Row("video_holmes", "FrameThinker", "Table 2")
    assert [one.accuracy for one in numbers_of("FrameThinker", only)] == both[1:]


@pytest.mark.parametrize("played", [True, False])
def test_it_is_written_from_the_reports(tmp_path: Path, played: bool) -> None:
    made = reproduction(tmp_path, *STAGES[:2], {**STAGES[2], "row": {"benchmark": "after", "figure": 1}})
    if played:
        file = tmp_path / "out" / "judged" / "report.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(report(0.25)), encoding="utf-8")
    text = write_table(made)
    assert (tmp_path / "out" / "table.md").read_text() == text
    assert rows_of(text)[0][1] == ("25.0" if played else "not played")
