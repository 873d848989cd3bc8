"""Scores that benchmarks report in addition to the accuracy, by hand."""

import math
from typing import Any

import pytest

from agentic_video.evaluation.report import category_of, duration_of, figures, report_text
from agentic_video.evaluation.results import Failure
from agentic_video.evaluation.suites import HEADLINES, SUITES, headline, suite_figures
from agentic_video.types.record import Record
from tests.evaluation.records import cells, record


def graded(source: str, acc: float | None, video: str = "v.mp4", free: bool = False, **extra: Any) -> Record:
    """A graded question, which is multiple choice unless it is ``free``."""
    kind: Any = "open_ended" if free else "multiple_choice"
    return record(source=source, video=video, kind=kind, extra=extra, **({} if acc is None else {"acc": acc}))


def described(category: str, precision: float, recall: float) -> Record:
    extra = {"category": category, "events": ["a cat jumps"]}
    values = {"acc": 0.5, "caption_precision": precision, "caption_recall": recall}
    return record(source="dream1k", video=f"{category}.mp4", kind="open_ended", extra=extra, **values)


def triplet(number: int, aspect: str, *grades: float) -> list[Record]:
    kinds = ("ground_truth", "in_video", "out_video")
    return [
        graded("elv_halluc", acc, category=aspect, triplet=str(number), caption_type=kind)
        for kind, acc in zip(kinds, grades, strict=False)
    ]


MLVU = [graded("mlvu", acc, category="count") for acc in (1, 0, 0, 0)] + [graded("mlvu", 1, category="ego")]
SUMMARIES = [graded("mlvu", 0.1, free=True, category=task) for task in ("sub_scene", "summary")]
DREAM = [described("stock", 1.0, 0.5), described("stock", 0.0, 0.5), described("live", 0.7, 0.1)]


@pytest.mark.parametrize(
    ("records", "scores"),
    [
        # tasks count equally: a quarter and one; open answers and ungraded ones count nowhere
        ([*MLVU, graded("mlvu", None, category="ego"), *SUMMARIES], {"M-Avg": 0.625}),
        # precision: (0.5 + 0.7) / 2; recall: (0.5 + 0.1) / 2; F1 of these means
        (DREAM, {"precision": 0.6, "recall": 0.3, "F1": 2 * 0.6 * 0.3 / 0.9}),
        ([record(source="vdc", acc=0.5, caption_score=score) for score in (2.0, 4.0)], {"score of 5": 0.6}),
        ([graded("vdc", 0.5, free=True)], None),
        (
            [
                *triplet(0, "object", 1, 1, 1),
                *triplet(1, "object", 1, 0, 1),
                *triplet(2, "action", 1, 0, 1),
                *triplet(3, "action", 0, 1, 1),
                *triplet(4, "action", 1, 1),  # incomplete: counts nowhere
            ],
            # in: the first of four; out: the first three; (3/4 - 1/4) / (1 - 1/4)
            {
                "in-video": 0.25,
                "out-of-video": 0.75,
                "mean of both": 0.5,
                "difference": 0.5,
                "SAH ratio": 2 / 3,
                "object: in-video": 0.5,
                "object: out-of-video": 1.0,
                "action: in-video": 0.0,
                "action: out-of-video": 0.5,
            },
        ),
        ([graded("elv_halluc", 1.0)], None),  # rows of another converter
        # all questions of a video: one of two
        (
            [graded("temporalbench", acc, video_name=name) for name, acc in (("a", 1), ("a", 1), ("b", 1), ("b", 0))],
            {"multiple binary accuracy": 0.5},
        ),
        (
            [
                graded("mmvu", 1, question_kind="multiple-choice", discipline="Science"),
                graded("mmvu", 0, question_kind="open-ended", discipline="Science"),
                graded("mmvu", 0, question_kind="multiple-choice", discipline="Healthcare"),
                graded("mmvu", 1, question_kind="multiple-choice"),
            ],
            {"multiple-choice": 2 / 3, "open-ended": 0.0, "Healthcare": 0.0, "Science": 0.5},
        ),
        (
            [
                graded("videoeval_pro", float(kind != "Local Reasoning"), category=kind)
                for kind in ("Local Perception", "Local Reasoning", "Holistic Perception", "Holistic Reasoning")
            ],
            {"Local": 0.5, "Holistic": 1.0, "Perception": 1.0, "Reasoning": 0.5},
        ),
        (
            [
                graded("longtimescope", acc, category=kind, duration_name=length)
                for kind, length, acc in (("QA", "8 h", 1), ("QA", "8 h", 0), ("OCR", "8 h", 0), ("OCR", "10 h", 1))
            ],
            {"QA, 8 h": 0.5, "OCR, 8 h": 0.0, "OCR, 10 h": 1.0},
        ),
        ([graded("minerva", 1, domain="Sports"), graded("minerva", 0, domain="Film")], {"Film": 0.0, "Sports": 1.0}),
        # one of three and one
        (
            [
                *(graded("herbench", acc, category="order") for acc in (1, 0, 0)),
                graded("herbench", 1, category="count"),
            ],
            {"mean over tasks": 2 / 3},
        ),
        *(
            (
                [graded(source, 1, length="long", domain="Law"), graded(source, 0, length="short", domain="Law")],
                {"long": 1.0, "short": 0.0, "Law": 0.5},
            )
            for source in ("videomme", "videomme_subtitles")
        ),
        ([graded("lsdbench", 1.0, category="c")], None),  # a source without a suite
        ([], None),
    ],
)
def test_scores_of_a_benchmark(records: list[Record], scores: dict[str, float] | None) -> None:
    found = [{name: each["mean"] for name, each in figures.items()} for figures in suite_figures(records).values()]
    assert found == ([] if scores is None else [pytest.approx(scores)])


def test_the_headline_is_the_benchmarks_own_score() -> None:
    assert all(source in SUITES for source in HEADLINES)
    result = figures(MLVU)
    assert (result["official"]["mean"], result["headline"]["mean"], result["headline"]["name"]) == (0.4, 0.625, "M-Avg")
    assert result["suites"]["mlvu"]["M-Avg"] == {"mean": 0.625, "error": None}
    this_run = next(row for row in cells(report_text("t", result, "mlvu_dev")) if row[0] == "this run")
    assert (this_run[2], this_run[5]) == ("62.5", "M-Avg")
    # three not played, five were: 0.625 * 5 / 8
    failed = [Failure(("mlvu", f"x{number}"), "gone") for number in range(3)]
    assert figures(MLVU, failed)["headline"]["unplayed_wrong"] == pytest.approx(0.390625)
    found = headline([*MLVU, *SUMMARIES])
    assert (found.mean, found.episodes, found.problem) == (0.625, 5, "")
    assert headline(SUMMARIES).problem and headline(SUMMARIES).mean is None
    assert (headline(DREAM).name, headline(DREAM).problem) == ("precision", "")


def test_elsewhere_the_headline_is_the_accuracy() -> None:
    for sources in (("lvbench", "lvbench"), ("mlvu", "x")):
        found = headline([graded(source, acc, video) for source, acc, video in zip(sources, (1, 0), "ab", strict=True)])
        assert (found.name, found.mean, found.error, found.episodes) == ("accuracy", 0.5, 0.5, 2)
    assert headline([]).mean is None and headline([graded("mlvu", None)]).mean is None


def test_the_quiz_of_video_mmlu_counts_its_disciplines_equally() -> None:
    quiz = [graded("video_mmlu", acc, free=True, category="Maths") for acc in (1, 1, 0, 0)]
    quiz += [graded("video_mmlu", 1, free=True, category="Physics")]
    caption = graded("video_mmlu", 0.2, free=True, category="Physics", qa_list="[]")
    found = headline([*quiz, caption])
    # a half and one
    assert (found.name, found.mean, found.episodes, found.problem) == ("mean over disciplines", 0.75, 5, "")
    assert headline([caption]).problem and headline([graded("video_mmlu", 1, free=True, category="")]).problem


def test_published_numbers_are_shown_where_grades_are_comparable() -> None:
    quiz = [graded("video_mmlu", acc, free=True, category="Maths") for acc in (1, 0, 0.4)]
    assert "67.9" in report_text("t", figures(quiz[:2]), "video_mmlu")
    assert "67.9" not in report_text("t", figures(quiz), "video_mmlu"), "graded by words"
    encoder = report_text("t", figures([graded("temporalbench", 1, free=True)]), "temporalbench_short_caption")
    assert "| this run" not in encoder and "56.4" not in encoder, "published by a sentence encoder"


def test_groups_of_the_report() -> None:
    """Several categories of one question, and durations by the benchmark's names or else by the file."""
    assert category_of(graded("lvbench", 1.0, category="a", categories=["a", "b"]).qa) == ["a", "b"]
    assert duration_of(graded("longvideobench", 1.0, duration_name="3-10 min", duration_group=600).qa) == ["3-10 min"]
    assert duration_of(graded("videomme", 1.0, length="long").qa) == ["long"]
    measured = record(source="lvbench", acc=1.0, video_seconds=4000.0)
    assert list(figures([measured])["by"]["duration"]) == ["> 3600 s"]


def test_suites_have_errors_by_video() -> None:
    """Of a plain mean with as many questions of each video the jackknife gives what the formula gives."""
    grades = {"a": (1, 1), "b": (0, 1), "c": (0, 0)}
    records = [graded("mmvu", acc, video, discipline="Science") for video, pair in grades.items() for acc in pair]
    assert suite_figures(records)["mmvu"]["Science"] == {
        "mean": 0.5,
        # deviations within the videos are 1, 0, -1: sqrt(3 / 2 * 2) / 6
        "error": pytest.approx(math.sqrt(3) / 6),
    }
    assert suite_figures(records[:2])["mmvu"]["Science"]["error"] is None, "one video"
    # a score that needs a certain video has none
    apart = [graded("mmvu", 1, "a", discipline="Science"), graded("mmvu", 1, "b", discipline="Healthcare")]
    assert suite_figures(apart)["mmvu"]["Science"] == {"mean": 1.0, "error": None}
