"""Scores that benchmarks report beside the accuracy, by hand."""

from typing import Any

import pytest

from agentic_video.evaluation.report import category_of, duration_of, figures, report_text
from agentic_video.evaluation.suites import suite_scores
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory


def graded(source: str, acc: float | None, **extra: Any) -> Record:
    qa = VideoQA("q", "v.mp4", "which?", "A", options=("x", "y"), data_source=source, extra=extra)
    return Record(qa, Trajectory("q", "s", (), (), EndReason.ANSWER), {} if acc is None else {"acc": acc})


def test_mlvu_counts_its_tasks_equally() -> None:
    records = [graded("mlvu", acc, category="count") for acc in (1, 0, 0, 0)]
    records += [graded("mlvu", 1, category="ego"), graded("mlvu", None, category="ego")]
    # a quarter and one; the accuracy is two of five
    assert suite_scores(records) == {"mlvu": {"M-Avg": 0.625}}
    result = figures(records)
    assert result["official"]["mean"] == 0.4 and result["suites"]["mlvu"]["M-Avg"] == 0.625
    assert "| M-Avg | 62.5 |" in report_text("t", result, "mlvu_dev")


def test_elv_halluc_by_aspect_and_as_a_whole() -> None:
    def triplet(number: int, aspect: str, *grades: float) -> list[Record]:
        kinds = ("ground_truth", "in_video", "out_video")
        return [
            graded("elv_halluc", acc, category=aspect, triplet=str(number), caption_type=kind)
            for kind, acc in zip(kinds, grades, strict=False)
        ]

    records = [
        *triplet(0, "object", 1, 1, 1),
        *triplet(1, "object", 1, 0, 1),
        *triplet(2, "action", 1, 0, 1),
        *triplet(3, "action", 0, 1, 1),
        *triplet(4, "action", 1, 1),  # incomplete: counts nowhere
    ]
    (scores,) = suite_scores(records).values()
    # in: the first of four; out: the first three; (3/4 - 1/4) / (1 - 1/4)
    assert scores == {
        "in-video": 0.25,
        "out-of-video": 0.75,
        "mean of both": 0.5,
        "difference": 0.5,
        "SAH ratio": pytest.approx(2 / 3),
        "object: in-video": 0.5,
        "object: out-of-video": 1.0,
        "action: in-video": 0.0,
        "action: out-of-video": 0.5,
    }
    assert suite_scores([graded("elv_halluc", 1.0)]) == {}, "rows of another converter"


def test_temporalbench_wants_all_questions_of_a_video() -> None:
    records = [graded("temporalbench", acc, video_name=name) for name, acc in (("a", 1), ("a", 1), ("b", 1), ("b", 0))]
    assert suite_scores(records) == {"temporalbench": {"multiple binary accuracy": 0.5}}


def test_other_suites_have_none() -> None:
    assert suite_scores([graded("lsdbench", 1.0, category="c")]) == {}
    assert suite_scores([]) == {}


def test_lvbench_counts_a_question_for_each_of_its_types() -> None:
    qa = graded("lvbench", 1.0, category="a", categories=["a", "b"]).qa
    assert category_of(qa) == ["a", "b"]


def test_durations_by_the_benchmark_s_names_or_else_by_the_file() -> None:
    assert duration_of(graded("longvideobench", 1.0, duration_name="3-10 min", duration_group=600).qa) == ["3-10 min"]
    assert duration_of(graded("videomme", 1.0, length="long").qa) == ["long"]
    record = graded("lvbench", 1.0)
    measured = Record(record.qa, record.trajectory, {"acc": 1.0, "video_seconds": 4000.0})
    assert list(figures([measured])["by"]["duration"]) == ["> 3600 s"]
