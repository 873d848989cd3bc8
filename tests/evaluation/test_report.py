"""Figures and text of a report, by hand."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentic_video.evaluation.report import (
    bucket,
    by_turn,
    category_of,
    chosen_fps,
    duration_of,
    figures,
    report_text,
    write_report,
)
from agentic_video.evaluation.results import NO_VIDEO, SAME_ROW, UNREADABLE, ExcludedRow, Failure
from agentic_video.evaluation.tables import table
from agentic_video.types.action import Calls, Illegal, ToolCall
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn
from tests.evaluation.records import cells, record


def zoom(*rates: Any, legal: int = 1) -> Turn:
    calls = tuple(ToolCall("video_zoom", {"segment": [0, 1], "fps": rate}) for rate in rates)
    return Turn("zoom", Calls(calls), 5, legal_calls=legal)


def episode(number: int, turns: Sequence[Turn], kind: str, duration: Any, *rewards: float) -> Record:
    names = ("acc", "acc_robust", "frames", "turns", "tool_calls")
    return record(
        f"q{number}",
        "A" if number < 4 else None,
        source="one",
        video=f"v{number}.mp4",
        looks=turns,
        end=EndReason.ILLEGAL,
        extra={"kind": kind, "duration": duration},
        **dict(zip(names, rewards, strict=True)),
    )


FOUR = [
    episode(1, [zoom(1), zoom(2.5)], "count", 30, 1, 1, 40, 3, 2),
    episode(2, [], "count", 90, 0, 1, 10, 1, 0),
    episode(3, [zoom(2)], "order", 90.5, 1, 1, 20, 2, 1),
    episode(4, [zoom(9, legal=0), Turn("?", Illegal("no"), 5)], "count", "long", 0, 0, 10, 2, 0),
]
FAILED = [Failure(("one", "q5"), "VideoError: gone\nfor good")]
EXCLUDED = (
    ExcludedRow(NO_VIDEO, "rows.jsonl row 7: field 'video': /gone.mp4: no such file"),
    ExcludedRow(NO_VIDEO, "rows.jsonl row 8: field 'video': /gone.mp4: no such file"),
    ExcludedRow(UNREADABLE, "rows.jsonl row 9: field 'id'\nmust be a non-empty string"),
    ExcludedRow(SAME_ROW, "row q1 of one: field 'id' was there before", asked=False),
)


def test_figures_by_hand() -> None:
    result = figures(FOUR, FAILED)
    assert (result["asked"], result["episodes"], result["failed"], result["ungraded"]) == (5, 4, 1, 0)
    # two of four; variance (4 * 0.25) / 3 = 1/3, its root over 2
    assert result["official"] == {"episodes": 4, "mean": 0.5, "error": pytest.approx(0.288675, abs=1e-6)}
    assert result["robust"]["mean"] == 0.75
    # two of five, three of five
    assert result["official_unplayed_wrong"] == pytest.approx(0.4)
    assert result["robust_unplayed_wrong"] == pytest.approx(0.6)
    by_category = {name: group["official"]["mean"] for name, group in result["by"]["category"].items()}
    assert by_category == {"count": pytest.approx(1 / 3), "order": 1.0}
    assert result["official_mean_over_categories"] == pytest.approx(2 / 3)
    by_duration = {name: group["official"]["episodes"] for name, group in result["by"]["duration"].items()}
    assert by_duration == {"(0, 60] s": 1, "(60, 300] s": 2, "long": 1}
    # 40, 10, 20, 10
    assert result["per_episode"]["frames"] == {"mean": 20.0, "min": 10, "median": 15.0, "p90": 40, "max": 40}
    assert "seconds" not in result["per_episode"]
    assert result["distribution"] == {"turns": {"1": 1, "2": 2, "3": 1}, "tool_calls": {"0": 2, "1": 1, "2": 1}}
    # the refused call's 9 doesn't count
    assert result["chosen_fps"] == {"(0, 1]": 1, "(1, 2]": 1, "(2, 4]": 1}
    assert result["ends"] == {"answer": 3, "illegal": 1}


def test_excluded_rows_count_as_wrong_in_figures_of_their_own() -> None:
    result = figures(FOUR, FAILED, EXCLUDED)
    # 4 played, 1 failed, 3 excluded; a row that stands there twice is one question
    assert (result["asked"], result["episodes"], result["failed"]) == (8, 4, 1)
    assert (result["official"]["mean"], result["official_unplayed_wrong"]) == (0.5, pytest.approx(2 / 8))
    assert result["robust_unplayed_wrong"] == pytest.approx(3 / 8)
    assert result["left_out"]["rows"] == 4 and result["left_out"]["counted_wrong"] == 3
    assert result["left_out"]["by_reason"] == {SAME_ROW: 1, UNREADABLE: 1, NO_VIDEO: 2}
    # whoever copies the accuracy from the text sees the other one in the same line
    text = report_text("t", result, "mlvu_dev", FAILED)
    (line,) = (line for line in text.splitlines() if line.startswith("Accuracy 50.0 %"))
    assert "25.0 %" in line and "37.5 %" in line
    assert "- rows.jsonl row 9: field 'id' must be a non-empty string\n" in text
    many = [ExcludedRow(UNREADABLE, f"row {number}") for number in range(25)]
    text = report_text("t", figures(FOUR, (), many), "b")
    assert "- row 9\n" in text and "- row 10\n" not in text


def test_first_views_that_fit_no_budget_are_named_first() -> None:
    ends = (EndReason.TOKEN_BUDGET, EndReason.IMAGE_BUDGET)
    cut = record(looks=[Turn("?", Illegal("cut"), 5)], end=EndReason.TOKEN_BUDGET)
    result = figures([*FOUR, *(record(end=end) for end in ends), cut])
    assert result["unfit"] == {"token_budget": 1, "image_budget": 1}
    line = report_text("t", result, "b").splitlines()[3]
    assert "data.max_prompt_length" in line and "agentic_video.system.max_images" in line
    assert figures(FOUR)["unfit"] == {}


def test_missing_grades_are_not_made_up() -> None:
    nothing = figures([], FAILED)
    assert (nothing["official"]["mean"], nothing["official_unplayed_wrong"]) == (None, 0.0)
    assert report_text("t", figures([]), "mlvu_dev")
    ungraded = figures([record(frames=4.0)], FAILED)
    assert ungraded["official_unplayed_wrong"] is None and ungraded["robust_unplayed_wrong"] is None
    first = Record(FOUR[0].qa, FOUR[0].trajectory, {"frames": 40, "turns": 3, "tool_calls": 2})
    result = figures([first, *FOUR[1:]])
    assert result["ungraded"] == 1
    assert result["official"] == {"episodes": 3, "mean": pytest.approx(1 / 3), "error": pytest.approx(1 / 3)}


def test_the_text_shows_published_numbers_and_failures(tmp_path: Path) -> None:
    result, text = write_report(tmp_path, "title", "mlvu_dev", FOUR, FAILED)
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(result))
    assert (tmp_path / "report.md").read_text() == text
    rows = cells(text)
    (this_run,) = (row for row in rows if row[0] == "this run")
    assert this_run[2:4] == ["50.0", "20.0"]
    assert ["VideoZoomer", "VideoZoomer", "68.8", "-", "Table 1"] in [row[:5] for row in rows]
    assert ["count", "3", "33.3", "33.3", "66.7"] in rows
    assert "- one q5: VideoError: gone for good" in text
    assert "VideoZoomer" not in report_text("t", result, "some other benchmark")


@pytest.mark.parametrize(
    ("value", "name"), [(0.5, "(0, 1]"), (1, "(0, 1]"), (1.01, "(1, 2]"), (8, "(4, 8]"), (8.5, "> 8")]
)
def test_ranges_include_their_upper_end(value: float, name: str) -> None:
    assert bucket(value, (1, 2, 4, 8)) == name


def test_rates_that_a_model_wrote_are_hostile() -> None:
    turn = zoom("2", None, True, -1, 0, float("nan"), float("inf"), [2], 3)
    assert chosen_fps(Trajectory("q", "s", (), (turn,), EndReason.ILLEGAL)) == [3.0]


@pytest.mark.parametrize(
    ("extra", "category", "duration"),
    [
        ({}, [], []),
        ({"question_type": ["entity", "event"], "duration_group": 600}, ["entity", "event"], ["(300, 900] s"]),
        ({"category": "", "kind": "colour", "duration": "medium"}, ["colour"], ["medium"]),
        ({"kind": None, "duration": None}, [], []),
        ({"kind": 3, "duration": float("nan")}, [], []),
    ],
)
def test_category_and_duration(extra: dict[str, Any], category: list[str], duration: list[str]) -> None:
    qa = VideoQA("q", "v", "?", "A", extra=extra)
    assert (category_of(qa), duration_of(qa)) == (category, duration)


def look(frames: int, start: float, end: float, width: int, **arguments: Any) -> Turn:
    refs = tuple(FrameRef(n, start + (end - start) * n / max(1, frames - 1), width, 28) for n in range(frames))
    return Turn("t", Calls((ToolCall("frame_select", arguments),)), 5, observation=refs, legal_calls=1)


def test_looks_by_turn() -> None:
    episodes = [
        record(looks=[look(4, 0, 60, 56, nframes=4, resize=0.25), look(2, 10, 14, 224, nframes=2, resize=1)]),
        record(looks=[zoom(9, legal=0), look(8, 0, 20, 112, nframes=8, resize=0.5)]),
        record(looks=[look(1, 5, 5, 28, nframes=10**400, resize=True)]),
    ]
    found = by_turn(episodes)
    assert {name: (value["episodes"], value["mean"]) for name, value in found["1"].items()} == {
        "frames": (3, pytest.approx(13 / 3)),
        "seconds": (3, pytest.approx(80 / 3)),
        "width": (3, pytest.approx(196 / 3)),
        "argument nframes": (2, 6.0),
        "argument resize": (2, 0.375),
    }
    second = {name: value["mean"] for name, value in found["2"].items()}
    assert second == {"frames": 2, "seconds": 4, "width": 224, "argument nframes": 2, "argument resize": 1}
    assert any(row[0] == "look" for row in cells(report_text("t", figures(episodes), "")))


def test_a_table_keeps_its_columns() -> None:
    assert table(("a", "b"), [("x|y", "line\nbreak")])[2] == "| x\\|y | line break |"
