"""Scores that benchmarks report beside the accuracy, by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest

from agentic_video.evaluation.report import category_of, duration_of, figures, report_text
from agentic_video.evaluation.results import Failure
from agentic_video.evaluation.suites import HEADLINES, SUITES, headline, suite_figures, suite_scores
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory


def graded(source: str, acc: float | None, video: str = "v.mp4", **extra: Any) -> Record:
    qa = VideoQA("q", video, "which?", "A", options=("x", "y"), data_source=source, extra=extra)
    return Record(qa, Trajectory("q", "s", (), (), EndReason.ANSWER), {} if acc is None else {"acc": acc})


def test_mlvu_counts_its_tasks_equally() -> None:
    records = [graded("mlvu", acc, category="count") for acc in (1, 0, 0, 0)]
    records += [graded("mlvu", 1, category="ego"), graded("mlvu", None, category="ego")]
    # a quarter and one; the accuracy is two of five
    assert suite_scores(records) == {"mlvu": {"M-Avg": 0.625}}
    result = figures(records)
    assert result["official"]["mean"] == 0.4 and result["suites"]["mlvu"]["M-Avg"] == {"mean": 0.625, "error": None}
    assert "| M-Avg | 62.5 | -              |" in report_text("t", result, "mlvu_dev")


def free(record: Record) -> Record:
    """The same question with an open answer."""
    return replace(record, qa=replace(record.qa, answer_type="open_ended", options=()))


def test_mlvu_s_open_answers_are_no_part_of_its_mean() -> None:
    records = [graded("mlvu", acc, category="count") for acc in (1, 0)] + [graded("mlvu", 1, category="ego")]
    summaries = [free(graded("mlvu", 0.1, category=task)) for task in ("sub_scene", "summary")]
    assert suite_scores([*records, *summaries]) == {"mlvu": {"M-Avg": 0.75}}
    found = headline([*records, *summaries])
    assert (found.name, found.mean, found.episodes, found.problem) == ("M-Avg", 0.75, 3, "")
    assert headline(summaries).problem == "this run has no M-Avg" and headline(summaries).mean is None


def test_the_number_to_compare_with_papers_is_the_benchmark_s_own() -> None:
    assert all(source in SUITES for source in HEADLINES)
    records = [graded("mlvu", acc, category="count") for acc in (1, 0, 0, 0)] + [graded("mlvu", 1, category="ego")]
    result = figures(records)
    assert (result["official"]["mean"], result["headline"]["mean"], result["headline"]["name"]) == (0.4, 0.625, "M-Avg")
    text = report_text("t", result, "mlvu_dev")
    this_run = [cell.strip() for cell in next(line for line in text.splitlines() if "| this run" in line).split("|")]
    assert (this_run[3], this_run[6]) == ("62.5", "M-Avg")
    assert "M-Avg 62.5 % on 5 episodes: the number to compare with papers." in text
    # three not played, five were: 0.625 * 5 / 8
    result = figures(records, [Failure(("mlvu", f"x{number}"), "gone") for number in range(3)])
    assert result["headline"]["unplayed_wrong"] == pytest.approx(0.390625)
    assert "M-Avg; 3 of 8 questions not played; 39.1 with them as wrong" in report_text("t", result, "mlvu_dev")


def test_elsewhere_it_is_the_accuracy() -> None:
    for records in (
        [graded("lvbench", 1, "a"), graded("lvbench", 0, "b")],
        [graded("mlvu", 1, "a"), graded("x", 0, "b")],
    ):
        found = headline(records)
        assert (found.name, found.mean, found.error, found.episodes) == ("accuracy", 0.5, 0.5, 2)
    assert headline([]).mean is None and headline([graded("mlvu", None)]).mean is None


def test_the_quiz_of_video_mmlu_counts_its_disciplines_equally() -> None:
    quiz = [free(graded("video_mmlu", acc, category="Maths")) for acc in (1, 1, 0, 0)]
    quiz += [free(graded("video_mmlu", 1, category="Physics"))]
    caption = free(graded("video_mmlu", 0.2, category="Physics", qa_list="[]"))
    found = headline([*quiz, caption])
    # a half and one
    assert (found.name, found.mean, found.episodes, found.problem) == ("mean over disciplines", 0.75, 5, "")
    assert headline([caption]).problem and headline([free(graded("video_mmlu", 1, category=""))]).problem


def test_grades_by_words_do_not_stand_beside_published_ones() -> None:
    quiz = [free(graded("video_mmlu", acc, category="Maths")) for acc in (1, 0, 0.4)]
    text = report_text("t", figures(quiz), "video_mmlu")
    assert "aren't shown next to this run's: open-ended answers were graded by their words" in text
    assert "67.9" not in text and "67.9" in report_text("t", figures(quiz[:2]), "video_mmlu")


def test_scores_by_a_sentence_encoder_do_not_stand_beside_a_judge_s() -> None:
    text = report_text("t", figures([free(graded("temporalbench", 1))]), "temporalbench_short_caption")
    assert "| this run" not in text and "56.4" not in text


def described(category: str, precision: float, recall: float) -> Record:
    found = free(graded("dream1k", 0.5, video=f"{category}.mp4", category=category, events=["a cat jumps"]))
    return replace(found, rewards={**found.rewards, "caption_precision": precision, "caption_recall": recall})


def test_dream1k_counts_its_sources_equally_and_takes_the_f1_of_the_means() -> None:
    records = [described("stock", 1.0, 0.5), described("stock", 0.0, 0.5), described("live", 0.7, 0.1)]
    scores = suite_scores(records)["dream1k"]
    # precision: (0.5 + 0.7) / 2; recall: (0.5 + 0.1) / 2
    assert scores == pytest.approx({"precision": 0.6, "recall": 0.3, "F1": 2 * 0.6 * 0.3 / 0.9})
    assert headline(records).name == "precision" and headline(records).problem == ""
    text = report_text("t", figures(records), "dream1k")
    assert "38.7" in text and "| this run" in text


def test_vdc_s_score_is_a_share_of_five() -> None:
    assert suite_scores([free(graded("vdc", 0.5))]) == {}
    records = [
        replace(record, rewards={**record.rewards, "caption_score": score})
        for record, score in ((free(graded("vdc", 0.5)), 2.0), (free(graded("vdc", 1)), 4.0))
    ]
    assert suite_scores(records)["vdc"] == {"score of 5": pytest.approx(0.6)}


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


def test_mmvu_by_kind_and_discipline() -> None:
    records = [
        graded("mmvu", 1, question_kind="multiple-choice", discipline="Science"),
        graded("mmvu", 0, question_kind="open-ended", discipline="Science"),
        graded("mmvu", 0, question_kind="multiple-choice", discipline="Healthcare"),
        graded("mmvu", 1, question_kind="multiple-choice"),
    ]
    assert suite_scores(records)["mmvu"] == {
        "multiple-choice": pytest.approx(2 / 3),
        "open-ended": 0.0,
        "Healthcare": 0.0,
        "Science": 0.5,
    }


def test_videoeval_pro_by_halves() -> None:
    grades = {"Local Perception": 1, "Local Reasoning": 0, "Holistic Perception": 1, "Holistic Reasoning": 1}
    records = [graded("videoeval_pro", acc, category=kind) for kind, acc in grades.items()]
    scores = suite_scores(records)["videoeval_pro"]
    assert scores == {"Local": 0.5, "Holistic": 1.0, "Perception": 1.0, "Reasoning": 0.5}


def test_longtimescope_by_type_and_length() -> None:
    records = [
        graded("longtimescope", acc, category=kind, duration_name=length)
        for kind, length, acc in (("QA", "8 h", 1), ("QA", "8 h", 0), ("OCR", "8 h", 0), ("OCR", "10 h", 1))
    ]
    assert suite_scores(records)["longtimescope"] == {"QA, 8 h": 0.5, "OCR, 8 h": 0.0, "OCR, 10 h": 1.0}
    assert set(figures(records)["by"]["duration"]) == {"8 h", "10 h"}


def test_minerva_by_domain_and_by_skill() -> None:
    records = [
        graded("minerva", 1, domain="Sports", categories=["Counting", "OCR"]),
        graded("minerva", 0, domain="Film", categories=["Counting"]),
    ]
    assert suite_scores(records)["minerva"] == {"Film": 0.0, "Sports": 1.0}
    by = figures(records)["by"]["category"]
    assert (by["Counting"]["official"]["mean"], by["OCR"]["official"]["mean"]) == (0.5, 1.0)


def test_herbench_counts_its_tasks_equally() -> None:
    records = [graded("herbench", acc, category="order") for acc in (1, 0, 0)] + [
        graded("herbench", 1, category="count")
    ]
    assert suite_scores(records)["herbench"] == {"mean over tasks": pytest.approx(2 / 3)}


def test_videomme_with_and_without_subtitles() -> None:
    for source in ("videomme", "videomme_subtitles"):
        records = [graded(source, 1, length="long", domain="Law"), graded(source, 0, length="short", domain="Law")]
        assert suite_scores(records) == {source: {"long": 1.0, "short": 0.0, "Law": 0.5}}


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
    assert suite_scores(records) == {"mmvu": {"Science": 0.5}}


def test_a_score_that_needs_a_certain_video_has_no_error() -> None:
    records = [graded("mmvu", 1, "a", discipline="Science"), graded("mmvu", 1, "b", discipline="Healthcare")]
    assert suite_figures(records)["mmvu"]["Science"] == {"mean": 1.0, "error": None}
