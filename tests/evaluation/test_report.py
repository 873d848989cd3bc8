import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.evaluation.report import (
    bucket,
    by_turn,
    category_of,
    chosen_fps,
    duration_of,
    figures,
    report_text,
    spread,
    write_report,
)
from agentic_video.evaluation.results import NO_VIDEO, SAME_ROW, UNREADABLE, ExcludedRow, Failure
from agentic_video.evaluation.tables import table
from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn


def zoom(*rates: Any, legal: int = 1) -> Turn:
    calls = tuple(ToolCall("video_zoom", {"segment": [0, 1], "fps": rate}) for rate in rates)
    return Turn("zoom", Calls(calls), 5, legal_calls=legal)


def record(number: int, turns: Sequence[Turn], end: EndReason, rewards: dict[str, float], **extra: Any) -> Record:
    qa = VideoQA(f"q{number}", f"v{number}.mp4", "which?", "A", options=("x", "y"), data_source="one", extra=extra)
    return Record(qa, Trajectory(qa.id, "s", (), tuple(turns), end), rewards)


def four() -> list[Record]:
    answer = Turn("a", Answer("A"), 5)
    return [
        record(
            1,
            [zoom(1), zoom(2.5), answer],
            EndReason.ANSWER,
            {"acc": 1, "acc_robust": 1, "frames": 40, "turns": 3, "tool_calls": 2},
            kind="count",
            duration=30,
        ),
        record(
            2,
            [answer],
            EndReason.ANSWER,
            {"acc": 0, "acc_robust": 1, "frames": 10, "turns": 1, "tool_calls": 0},
            kind="count",
            duration=90,
        ),
        record(
            3,
            [zoom(2), answer],
            EndReason.ANSWER,
            {"acc": 1, "acc_robust": 1, "frames": 20, "turns": 2, "tool_calls": 1},
            kind="order",
            duration=90.5,
        ),
        record(
            4,
            [zoom(9, legal=0), Turn("?", Illegal("no"), 5)],
            EndReason.ILLEGAL,
            {"acc": 0, "acc_robust": 0, "frames": 10, "turns": 2, "tool_calls": 0},
            kind="count",
            duration="long",
        ),
    ]


def test_figures_by_hand() -> None:
    result = figures(four(), [Failure(("one", "q5"), "gone")])
    assert (result["episodes"], result["failed"], result["ungraded"]) == (4, 1, 0)
    # two of four; variance (4 * 0.25) / 3 = 1/3, its root over 2
    assert result["official"]["mean"] == 0.5
    assert result["official"]["error"] == pytest.approx(0.288675, abs=1e-6)
    assert result["robust"]["mean"] == 0.75
    # two of five
    assert result["asked"] == 5
    assert result["official_unplayed_wrong"] == pytest.approx(0.4)
    # three of five
    assert result["robust_unplayed_wrong"] == pytest.approx(0.6)
    by_category = {name: group["official"]["mean"] for name, group in result["by"]["category"].items()}
    assert by_category == {"count": pytest.approx(1 / 3), "order": 1.0}
    assert result["official_mean_over_categories"] == pytest.approx(2 / 3)
    by_duration = {name: group["official"]["episodes"] for name, group in result["by"]["duration"].items()}
    assert by_duration == {"(0, 60] s": 1, "(60, 300] s": 2, "long": 1}
    # 40, 10, 20, 10
    assert result["per_episode"]["frames"] == {"mean": 20.0, "min": 10, "median": 15.0, "p90": 40, "max": 40}
    assert "seconds" not in result["per_episode"]
    assert result["distribution"]["turns"] == {"1": 1, "2": 2, "3": 1}
    assert result["distribution"]["tool_calls"] == {"0": 2, "1": 1, "2": 1}
    # the refused call's 9 doesn't count
    assert result["chosen_fps"] == {"(0, 1]": 1, "(1, 2]": 1, "(2, 4]": 1}
    assert result["ends"] == {"answer": 3, "illegal": 1}


LEFT_OUT = (
    ExcludedRow(NO_VIDEO, "rows.jsonl row 7: field 'video': /gone.mp4: no such file"),
    ExcludedRow(NO_VIDEO, "rows.jsonl row 8: field 'video': /gone.mp4: no such file"),
    ExcludedRow(UNREADABLE, "rows.jsonl row 9: field 'id'\nmust be a non-empty string"),
    ExcludedRow(SAME_ROW, "row q1 of one: field 'id' was there before", asked=False),
)


def test_rows_that_were_left_out_count_as_wrong_beside() -> None:
    result = figures(four(), [Failure(("one", "q5"), "gone")], LEFT_OUT)
    # 4 played, 1 failed, 3 left out; a row that stands there twice is one question
    assert (result["asked"], result["episodes"], result["failed"]) == (8, 4, 1)
    assert result["official"]["mean"] == 0.5
    assert result["official_unplayed_wrong"] == pytest.approx(2 / 8)
    assert result["robust_unplayed_wrong"] == pytest.approx(3 / 8)
    assert result["left_out"]["rows"] == 4 and result["left_out"]["counted_wrong"] == 3
    assert result["left_out"]["by_reason"] == {SAME_ROW: 1, UNREADABLE: 1, NO_VIDEO: 2}
    assert result["left_out"]["first"][0] == LEFT_OUT[0].message


def test_whoever_copies_the_accuracy_sees_the_other_one_beside_it() -> None:
    result = figures(four(), [Failure(("one", "q5"), "gone")], LEFT_OUT)
    text = report_text("t", result, "mlvu_dev", [Failure(("one", "q5"), "gone")])
    assert (
        "Accuracy 50.0 % (standard error 28.9, by 4 videos) on 4 episodes of 8 questions, 25.0 % with those that were "
        "not played as wrong; by the robust rule 75.0 % on 4, 37.5 % with those as wrong." in text
    )
    assert f"4 rows of the data files left out ({SAME_ROW}: 1, {UNREADABLE}: 1, {NO_VIDEO}: 2); 1 of them not" in text
    assert "- rows.jsonl row 9: field 'id' must be a non-empty string\n" in text
    this_run = next(line for line in text.splitlines() if line.startswith("| this run"))
    assert "4 of 8 questions not played; 25.0 with them as wrong" in this_run


def test_first_views_that_fit_no_budget_are_named_first() -> None:
    records = [*four(), record(5, [], EndReason.TOKEN_BUDGET, {"acc": 0}), record(6, [], EndReason.IMAGE_BUDGET, {})]
    cut = record(7, [Turn("?", Illegal("cut"), 5)], EndReason.TOKEN_BUDGET, {"acc": 0})
    result = figures([*records, cut])
    assert result["unfit"] == {"token_budget": 1, "image_budget": 1}
    line = report_text("t", result, "b").splitlines()[3]
    assert line.startswith(
        "**2 of 7 first views fitted no budget: no turn, counted as wrong. To play them, raise data.max_"
    )
    assert "agentic_video.system.max_images" in line
    assert figures(four())["unfit"] == {} and "first view" not in report_text("t", figures(four()), "b")


def test_where_everything_was_played_nothing_is_said_about_others() -> None:
    text = report_text("t", figures(four()), "mlvu_dev")
    assert "Accuracy 50.0 % (standard error 28.9, by 4 videos) on 4 episodes; by the robust rule 75.0 % on 4.\n" in text
    assert "not played" not in text and "left out" not in text


def test_only_the_first_of_many_rows_are_named() -> None:
    many = [ExcludedRow(UNREADABLE, f"row {number}") for number in range(25)]
    text = report_text("t", figures(four(), (), many), "b")
    assert "25 rows of the data files left out" in text and "- row 9\n" in text and "- row 10\n" not in text


def test_nothing_could_be_played() -> None:
    result = figures([], [Failure(("one", "q5"), "gone")])
    assert (result["official"]["mean"], result["official_unplayed_wrong"]) == (None, 0.0)
    # nor is an accuracy made up where no episode has a grade
    ungraded = figures([record(1, [], EndReason.ANSWER, {"frames": 4})], [Failure(("one", "q5"), "gone")])
    assert ungraded["official_unplayed_wrong"] is None and ungraded["robust_unplayed_wrong"] is None


def test_an_episode_that_was_not_graded_counts_nowhere() -> None:
    records = four()
    records[0] = Record(records[0].qa, records[0].trajectory, {"frames": 40, "turns": 3, "tool_calls": 2})
    result = figures(records)
    assert result["ungraded"] == 1
    assert result["official"] == {"episodes": 3, "mean": pytest.approx(1 / 3), "error": pytest.approx(1 / 3)}


def test_nothing_was_played() -> None:
    result = figures([])
    assert result["official"]["mean"] is None
    assert "Accuracy - % on 0 episodes" in report_text("t", result, "mlvu_dev")


def test_the_text_shows_what_was_published_and_what_failed(tmp_path: Path) -> None:
    failure = Failure(("one", "q5"), "VideoError: gone\nfor good")
    result, text = write_report(tmp_path, "title", "mlvu_dev", four(), [failure])
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(result))
    assert (tmp_path / "report.md").read_text() == text
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    note = "1 of 5 questions not played; 40.0 with them as wrong"
    assert ["this run", "", "50.0", "20.0", "", note] in lines
    assert ["VideoZoomer", "VideoZoomer", "68.8", "-", "Table 1", "the text of section 4.2 says 66.8"] in lines
    assert ["EVA", "EVA", "68.3", "22.2", "Table 2"] in [line[:5] for line in lines]
    assert ["count", "3", "33.3", "33.3", "66.7"] in lines
    assert "- one q5: VideoError: gone for good" in text
    assert "Published" not in report_text("t", result, "some other benchmark")


@pytest.mark.parametrize(
    ("value", "name"), [(0.5, "(0, 1]"), (1, "(0, 1]"), (1.01, "(1, 2]"), (8, "(4, 8]"), (8.5, "> 8")]
)
def test_ranges_include_their_upper_end(value: float, name: str) -> None:
    assert bucket(value, (1, 2, 4, 8)) == name


def test_what_a_model_wrote_as_a_rate_is_hostile() -> None:
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


def test_what_each_look_asked_for_and_showed() -> None:
    answer = Turn("t", Answer("A"), 5)
    episodes = [
        record(
            1,
            [look(4, 0, 60, 56, nframes=4, resize=0.25), look(2, 10, 14, 224, nframes=2, resize=1)],
            EndReason.ANSWER,
            {},
        ),
        record(2, [zoom(9, legal=0), look(8, 0, 20, 112, nframes=8, resize=0.5), answer], EndReason.ANSWER, {}),
        record(3, [look(1, 5, 5, 28, nframes=10**400, resize=True), answer], EndReason.ANSWER, {}),
    ]
    found = by_turn(episodes)
    assert {name: (value["episodes"], value["mean"]) for name, value in found["1"].items()} == {
        "frames": (3, pytest.approx(13 / 3)),
        "seconds": (3, pytest.approx(80 / 3)),
        "width": (3, pytest.approx(196 / 3)),
        "argument nframes": (2, 6.0),
        "argument resize": (2, 0.375),
    }
    assert {name: value["mean"] for name, value in found["2"].items()} == {
        "frames": 2.0,
        "seconds": 4.0,
        "width": 224.0,
        "argument nframes": 2.0,
        "argument resize": 1.0,
    }
    assert "| look |" in report_text("t", figures(episodes), "")


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_spread_is_in_order(values: list[float]) -> None:
    found = spread(values)
    assert found["min"] <= found["median"] <= found["p90"] <= found["max"]


def test_a_table_keeps_its_columns() -> None:
    lines = table(("a", "b"), [("x|y", "line\nbreak")])
    assert lines[2] == "| x\\|y | line break |"
