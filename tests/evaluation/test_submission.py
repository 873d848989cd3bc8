"""Files to submit where the answers aren't published."""

import json
from dataclasses import replace
from pathlib import Path

from agentic_video.datasets.rows import Problem
from agentic_video.evaluation.report import figures, write_report
from agentic_video.evaluation.results import Failure, excluded_row
from agentic_video.evaluation.submission import submissions, write_submissions
from agentic_video.types.record import Record
from tests.evaluation.records import record


def played(name: str, answer: str | None, hidden: bool = True) -> Record:
    extra = {"original_id": name, "answer_hidden": True} if hidden else {"original_id": name}
    made = record(f"ego-{name}", answer, source="ego", extra=extra, **({} if hidden else {"acc": float(answer == "A")}))
    return replace(made, qa=replace(made.qa, answer="" if hidden else "A", options=("cat", "dog", "eel")))


def test_options_as_numbers() -> None:
    answers = ("B", "(C) eel", "cat", None, "B or C", "A" * 5_000)
    records = [played(f"u{number}", answer) for number, answer in enumerate(answers, start=1)]
    failures = [Failure(("ego", "ego-u7"), "gone"), Failure(("other", "x"), "gone")]
    numbers = {"u1": 1, "u2": 2, "u3": 0, "u4": -1, "u5": -1, "u6": -1, "u7": -1}
    assert submissions(records, failures) == {"submission-ego.json": numbers}
    assert submissions([played("u1", "B", hidden=False)], [Failure(("ego", "ego-u2"), "gone")]) == {}


def test_excluded_rows_are_unanswered(tmp_path: Path) -> None:
    hidden = {"original_id": "u2", "answer_hidden": True}
    row = {"id": "ego-u2", "data_source": "ego", "options": ["cat", "dog"], "extra_info": hidden}
    plain = {**row, "id": "u3", "extra_info": {"answer_hidden": True}}
    shown = {**row, "id": "u4", "answer": "A", "extra_info": {}}
    problem = Problem("a.jsonl line 1", "v.mp4: no such file", "video")
    gone = [excluded_row(problem, raw) for raw in (row, plain, shown, None)]
    again = [excluded_row(problem, {**row, "extra_info": {**hidden, "original_id": "u1"}})]
    late = excluded_row(problem, {**row, "extra_info": {**hidden, "original_id": "u9"}})
    write_submissions(tmp_path, [played("u1", "B")], excluded=[*gone, *again, replace(late, asked=False)])
    assert json.loads((tmp_path / "submission-ego.json").read_text()) == {"u1": 1, "u2": -1, "u3": -1}
    strange = [{**row, "extra_info": 7}, {**row, "data_source": None}, [], {**row, "options": None}]
    assert [excluded_row(problem, raw).submitted for raw in strange] == [None] * 4


def test_hidden_answers_are_told_from_missing_grades(tmp_path: Path) -> None:
    records = [played("u1", "B"), played("u2", "A", hidden=False)]
    result, text = write_report(tmp_path, "t", "egoschema", records)
    assert (result["hidden"], result["ungraded"], result["official"]["episodes"]) == (1, 1, 1)
    assert "submission-*.json" in text and "agentic_video.judge" not in text
    unjudged = replace(played("u2", "A", hidden=False), rewards={})
    assert (found := figures([unjudged, *records[:1]]))["ungraded"] - found["hidden"] == 1
