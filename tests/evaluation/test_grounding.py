"""Figures of rows with gold windows, by hand."""

from typing import Any

import pytest

from agentic_video.evaluation.grounding import grounding_values as measured
from agentic_video.evaluation.report import figures, report_text
from agentic_video.types.action import Calls, ToolCall
from agentic_video.types.record import Record
from agentic_video.types.row import AnswerType, Interval
from agentic_video.types.trajectory import FrameRef, Turn
from tests.evaluation.records import cells, record

CALL = Calls((ToolCall("look", {}),))


def grounding_values(records: list[Record]) -> dict[str, dict[str, list[float]]]:
    """Without the videos."""
    found = measured(records)
    assert {video for by_name in found.values() for pairs in by_name.values() for _, video in pairs} <= {"v.mp4"}
    return {
        source: {name: [value for value, _ in pairs] for name, pairs in by_name.items()}
        for source, by_name in found.items()
    }


def played(
    answer: str | None,
    kind: AnswerType,
    windows: tuple[Interval, ...],
    looks: tuple[tuple[float, ...], ...] = (),
    source: str = "s",
    video: str = "v.mp4",
    extra: dict[str, Any] | None = None,
    **rewards: float,
) -> Record:
    turns = [
        Turn("look", CALL, 1, observation=tuple(FrameRef(int(time), time, 28, 28) for time in times), legal_calls=1)
        for times in looks
    ]
    return record(
        "q", answer, source=source, video=video, kind=kind, looks=turns, windows=windows, extra=extra, **rewards
    )


def test_one_interval_by_hand() -> None:
    records = [
        played("0 - 6", "interval", ((0.0, 10.0),)),  # 0.6
        played("5 - 10", "interval", ((40.0, 50.0), (0.0, 10.0))),  # 0.5 with the second
        played("0 - 10, 20 - 30", "interval", ((0.0, 10.0),)),  # two answers are none
        played(None, "interval", ((0.0, 10.0),)),
    ]
    (found,) = grounding_values(records).values()
    assert found["R1@0.3"] == found["R1@0.5"] == [1.0, 1.0, 0.0, 0.0]
    assert found["R1@0.7"] == [0.0] * 4
    assert found["mIoU"] == [0.6, 0.5, 0.0, 0.0]
    assert found["windows_found"] == [0.0] * 4 and "looks_in_windows" not in found and "mAP" not in found


def test_several_intervals_by_hand() -> None:
    gold = ((0.0, 10.0), (20.0, 60.0))
    (found,) = grounding_values(
        [played("70 - 80, 20 - 60", "intervals", gold), played("?", "intervals", gold)]
    ).values()
    # the first misses; the second hits one of two windows exactly, at precision 1/2
    assert found["R1@0.5"] == [0.0, 0.0] and found["mIoU"] == [0.0, 0.0]
    assert found["mAP"] == found["mAP@0.5"] == found["mAP@0.75"] == [0.25, 0.0]
    assert "HL mAP" not in found and "HL Hit@1" not in found
    assert found["mAP short"] == [0.0, 0.0] and found["mAP long"] == [0.5, 0.0] and "mAP middle" not in found


def test_highlights_by_hand() -> None:
    """Clips 1 and 2 of four are very good to all; the first answer holds clip 1, then clip 3."""
    extra = {"duration": 8, "relevant_clip_ids": [1, 2], "saliency_scores": [[4, 4, 4], [4, 4, 4]]}
    (found,) = grounding_values(
        [
            played("2 - 4, 6 - 8", "intervals", ((2.0, 6.0),), extra=extra),
            played("6 - 8", "intervals", ((2.0, 6.0),), extra=extra),
            played(None, "intervals", ((2.0, 6.0),), extra=extra),
        ]
    ).values()
    # 1/1, and 2 of all four clips; then 0 of 1 and 2 of 4; nothing of no answer
    assert found["HL mAP"] == [pytest.approx((1 + 1 / 2) / 2), pytest.approx(1 / 2), 0.0]
    assert found["HL Hit@1"] == [1.0, 0.0, 0.0]


def test_evidence_of_another_answer_is_the_last_look() -> None:
    gold = ((10.0, 20.0),)
    records = [
        played("A", "multiple_choice", gold, ((0, 50), (15, 25)), acc=1.0),  # 5 of 10 seconds, 5 of 15
        played("A", "multiple_choice", gold, ((10, 14, 20),), acc=0.0),
        played("A", "multiple_choice", gold, acc=1.0),
        played("A", "multiple_choice", gold, ((12, 18),)),  # not graded
    ]
    (found,) = grounding_values(records).values()
    assert found["mIoP"] == [0.5, 1.0, 0.0, 1.0]
    assert found["mIoU"] == [pytest.approx(1 / 3), 1.0, 0.0, 0.6]
    assert found["IoP@0.5"] == [1.0, 1.0, 0.0, 1.0] and found["IoU@0.5"] == [0.0, 1.0, 0.0, 1.0]
    assert found["Acc@GQA"] == [1.0, 0.0, 0.0] and found["Acc@IoU0.5"] == [0.0, 0.0, 0.0]
    assert found["windows_found"] == [1.0, 1.0, 0.0, 1.0]
    assert found["looks_in_windows"] == [0.25, 1.0, 1.0]


def test_rows_without_windows_have_none() -> None:
    assert grounding_values([played("A", "multiple_choice", (), acc=1.0)]) == {}
    assert figures([])["grounding"] == {}


def test_the_report_has_them_with_their_standard_errors() -> None:
    records = [
        played("0 - 10", "interval", ((0.0, 10.0),), ((1, 2), (30, 40)), source="charades_sta", acc=1.0),
        played("20 - 30", "interval", ((0.0, 10.0),), ((20, 21),), source="charades_sta", video="w", acc=0.0),
        played("A", "multiple_choice", ((0.0, 10.0),), source="nextgqa", acc=1.0),
    ]
    result = figures(records)
    # of 1 and 0: a deviation of 0.707 over the root of 2
    assert result["grounding"]["charades_sta"]["R1@0.7"] == {"episodes": 2, "mean": 0.5, "error": pytest.approx(0.5)}
    assert result["grounding"]["charades_sta"]["looks_in_windows"]["mean"] == 0.25
    assert result["grounding"]["nextgqa"]["Acc@GQA"] == {"episodes": 1, "mean": 0.0, "error": None}
    text = report_text("t", result, "charades_sta")
    lines = cells(text)
    assert ["charades_sta, grounding", "episodes", "%", "standard error"] in lines
    assert ["R1@0.7", "2", "50.0", "50.0"] in lines and ["looks in windows", "2", "25.0", "25.0"] in lines
    assert ["Acc@GQA", "1", "0.0", "-"] in lines
