"""The table of a reproduction."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.evaluation.report import figures
from agentic_video.launch.reproduce.chain import TableRow, read_chain
from agentic_video.launch.reproduce.reproduction import ReproduceOptions, Reproduction
from agentic_video.launch.reproduce.state import State
from agentic_video.launch.reproduce.table import (
    QuestionCount,
    TableEntry,
    benchmark_of,
    numbers_of,
    table_text,
    write_table,
)
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory
from tests.config.configs import RECIPES
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
            TableEntry(TableRow("mlvu_dev", "VideoZoomer"), report(0.65), QuestionCount(100)),
            TableEntry(TableRow("lvbench", "VideoZoomer"), None, QuestionCount(1549)),
            TableEntry(TableRow("mine", "VideoZoomer"), report(0.5)),
        ],
    )
    assert "synthetic" not in text
    assert [row[:-1] for row in rows_of(text)] == [
        # 68.8 in Table 1 of the paper
        ["mlvu_dev", "VideoZoomer", "100", "65.0", "5.0", "80.0", "68.8", "-3.8", "-", "Table 1"],
        ["lvbench", "VideoZoomer", "", "not played", "", "", "41.5", "-", "-", "Table 1"],
        ["mine", "VideoZoomer", "100", "50.0", "5.0", "80.0", "-", "-", "-", ""],
    ]


def test_what_was_not_played_counts_as_wrong(tmp_path: Path) -> None:
    unplayed = report(0.65, asked=130, official_unplayed_wrong=0.5)
    text = table_text(chain_of(tmp_path, mode="paper"), [TableEntry(TableRow("lvbench", "VideoZoomer"), unplayed)])
    ((_, _, asked, own, _, _, published, gap, _, _, note),) = rows_of(text)
    assert (asked, own, published, gap, note) == ("130", "50.0", "41.5", "+8.5", "30 of 130 not played")


@pytest.mark.parametrize(
    ("benchmark", "gap", "note"),
    [
        (QuestionCount(100), "+8.5", ""),
        (QuestionCount(103, bad=3), "+8.5", "100 of 103 official questions"),
        (QuestionCount(103, bad=2), "-", "100 of 103 official questions"),
        (QuestionCount(1549, bad=3, lacking=1446), "-", "100 of 1,549 official questions, 1,446 lack their video"),
        (QuestionCount(99), "+8.5", "100 of 99 official questions"),  # the files were revised
    ],
)
def test_a_part_of_a_benchmark_is_reported_and_not_compared(
    tmp_path: Path, benchmark: QuestionCount, gap: str, note: str
) -> None:
    evaluated = TableEntry(TableRow("lvbench", "VideoZoomer"), report(0.5), benchmark)
    text = table_text(chain_of(tmp_path, mode="paper"), [evaluated])
    ((_, _, asked, own, _, _, published, found, _, _, said),) = rows_of(text)
    assert (asked, own, published, found, said) == ("100", "50.0", "41.5", gap, note)


def test_a_benchmark_is_counted_by_its_conversion(tmp_path: Path) -> None:
    given = tmp_path / "mine.jsonl"
    options = ReproduceOptions(tmp_path, tmp_path, given={("rows-mlvu_dev", "rows"): given})
    made = Reproduction(read_chain(RECIPES / "videozoomer", "paper"), options, State(tmp_path))
    rows = tmp_path / "rows-lvbench" / "rows.parquet"
    rows.parent.mkdir()
    rows.write_text("")
    counts = {"missing_video": 9, "bad_row": 2, "unsupported": 1, "bad_file": 1, "bad_part": 5}
    (rows.parent / "rows.report.json").write_text(json.dumps({"official_rows": 1549, "counts": counts}))
    assert benchmark_of(made, made.chain.stage("agent-lvbench")) == QuestionCount(1549, bad=3, lacking=9)
    # without a report the converter knows; a report knows better
    assert benchmark_of(made, made.chain.stage("base-mlvu_dev")) == QuestionCount(2174)
    given.with_name("mine.report.json").write_text(json.dumps({"official_rows": None, "counts": {}}))
    assert benchmark_of(made, made.chain.stage("base-mlvu_dev")) is None
    assert benchmark_of(made, made.chain.stage("grpo")) is None


def test_beside_the_published_numbers_stands_the_score_that_papers_report(tmp_path: Path) -> None:
    def episode(number: int, acc: float, task: str) -> Record:
        qa = VideoQA(
            f"q{number}", f"{number}", "?", "A", options=("x", "y"), data_source="mlvu", extra={"category": task}
        )
        return Record(qa, Trajectory(qa.id, "s", (), (), EndReason.ANSWER), {"acc": acc})

    chain = chain_of(tmp_path, mode="paper")
    records = [episode(number, float(number < 1), "count") for number in range(4)] + [episode(4, 1.0, "ego")]
    open_ended = replace(records[0].qa, answer_type="open_ended", data_source="mine", options=())
    halves = figures([Record(open_ended, records[0].trajectory, {"acc": 0.5})])
    text = table_text(
        chain,
        [
            TableEntry(TableRow("mlvu_dev", "VideoZoomer"), figures(records)),
            TableEntry(TableRow("lvbench", "VideoZoomer"), halves),
        ],
    )
    (*_, own, _, _, published, gap, _, _, note), (*_, half, _, _, _, none, _, _, why) = rows_of(text)
    # a quarter and one, in two of five questions
    assert (own, published, gap) == ("62.5", "68.8", "-6.3") and note.startswith("M-Avg; ")
    assert (half, none) == ("50.0", "-") and "graded by their words or as half right" in why


def test_a_rehearsal_s_table_has_no_published_number(tmp_path: Path) -> None:
    rows = [
        TableEntry(TableRow("after SFT", figure=67.3), report(0.5)),
        TableEntry(TableRow("after GRPO"), report(None)),
        TableEntry(TableRow("mlvu_dev")),
    ]
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
    assert [number.accuracy for number in numbers_of("VideoZoomer", TableRow("mlvu_dev", "VideoZoomer"))] == [68.8]
    both = [56.1, 46.8]
    assert [number.accuracy for number in numbers_of("FrameThinker", TableRow("video_holmes", "FrameThinker"))] == both
    only = TableRow("video_holmes", "FrameThinker", "Table 2")
    assert [number.accuracy for number in numbers_of("FrameThinker", only)] == both[1:]


@pytest.mark.parametrize(("frames", "accuracy"), [(32, [60.9]), (48, [63.2]), (64, [64.0]), (16, [])])
def test_numbers_of_as_many_frames(frames: int, accuracy: list[float]) -> None:
    """FrameMind's Tables 1 and 2 have Video-MME at three numbers of frames."""
    assert [
        item.accuracy for item in numbers_of("FrameMind", TableRow("videomme", "FrameMind", frames=frames))
    ] == accuracy


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
