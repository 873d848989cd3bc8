"""What is submitted where the answers aren't published."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.datasets.rows import Problem
from agentic_video.evaluation.report import figures, report_text, write_report
from agentic_video.evaluation.results import Failure, excluded_row
from agentic_video.evaluation.submission import submissions, write_submissions
from agentic_video.types.action import Answer, Illegal
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn


def played(name: str, answer: str | None, hidden: bool = True) -> Record:
    extra = {"original_id": name, "answer_hidden": True} if hidden else {"original_id": name}
    gold = "" if hidden else "A"
    qa = VideoQA(
        f"ego-{name}", f"{name}.mp4", "what?", gold, options=("cat", "dog", "eel"), data_source="ego", extra=extra
    )
    if answer is None:
        return Record(qa, Trajectory(qa.id, "s", (), (Turn("?", Illegal("no"), 1),), EndReason.ILLEGAL), {})
    rewards = {} if hidden else {"acc": float(answer == "A")}
    return Record(qa, Trajectory(qa.id, "s", (), (Turn(answer, Answer(answer), 1),), EndReason.ANSWER), rewards)


def test_options_as_numbers() -> None:
    records = [
        played("u1", "B"),
        played("u2", "(C) eel"),
        played("u3", "cat"),
        played("u4", None),
        played("u5", "B or C"),
    ]
    records += [played("u6", "A" * 5_000)]
    failures = [Failure(("ego", "ego-u7"), "gone"), Failure(("other", "x"), "gone")]
    assert submissions(records, failures) == {
        "submission-ego.json": {"u1": 1, "u2": 2, "u3": 0, "u4": -1, "u5": -1, "u6": -1, "u7": -1}
    }


def test_rows_that_were_left_out_are_unanswered(tmp_path: Path) -> None:
    row = {
        "id": "ego-u2",
        "data_source": "ego",
        "options": ["cat", "dog"],
        "extra_info": {"original_id": "u2", "answer_hidden": True},
    }
    plain = {**row, "id": "u3", "extra_info": {"answer_hidden": True}}
    shown = {**row, "id": "u4", "answer": "A", "extra_info": {}}
    problem = Problem("a.jsonl line 1", "v.mp4: no such file", "video")
    gone = [excluded_row(problem, raw) for raw in (row, plain, shown, None)]
    again = [excluded_row(problem, {**row, "extra_info": {"original_id": "u1", "answer_hidden": True}})]
    late = excluded_row(problem, {**row, "extra_info": {"original_id": "u9", "answer_hidden": True}})
    write_submissions(tmp_path, [played("u1", "B")], excluded=[*gone, *again, replace(late, asked=False)])
    assert json.loads((tmp_path / "submission-ego.json").read_text()) == {"u1": 1, "u2": -1, "u3": -1}
    strange = [{**row, "extra_info": 7}, {**row, "data_source": None}, [], {**row, "options": None}]
    assert [excluded_row(problem, raw).submitted for raw in strange] == [None] * 4


def test_rows_with_answers_are_not_submitted() -> None:
    assert submissions([played("u1", "B", hidden=False)], [Failure(("ego", "ego-u2"), "gone")]) == {}


def test_the_report_says_so(tmp_path: Path) -> None:
    records = [played("u1", "B"), played("u2", "A", hidden=False)]
    result, text = write_report(tmp_path, "t", "egoschema", records)
    assert (result["hidden"], result["ungraded"], result["official"]["episodes"]) == (1, 1, 1)
    assert "The answers to 1 question aren't published" in text and "no grade" not in text
    assert json.loads((tmp_path / "report.json").read_text())["hidden"] == 1


@pytest.mark.parametrize("hidden", [True, False])
def test_what_could_not_be_judged_is_told_apart(hidden: bool) -> None:
    judged = Record(played("u2", "A", hidden=False).qa, played("u2", "A").trajectory, {})
    records = [judged, *([played("u1", "B")] if hidden else [])]
    assert "1 episodes have no grade" in report_text("t", figures(records), "egoschema")
