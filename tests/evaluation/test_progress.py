"""The progress bar."""

from typing import Any

from agentic_video.evaluation.progress import progress
from agentic_video.evaluation.results import Failure
from tests.evaluation.records import record


def test_it_counts_from_where_an_earlier_run_stopped(capsys: Any) -> None:
    with progress(3, [record("a", acc=1.0), record("b", seconds=1.0)]) as done:
        done(record("c", acc=0.0))
        done(record("d", acc=0.0))
        done(Failure(("s", "e"), "gone"))
    said = capsys.readouterr().err
    assert "2/5" in said and "5/5" in said
    assert "accuracy 33.3 %, failed 1" in said


def test_nothing_was_graded(capsys: Any) -> None:
    with progress(1, []) as done:
        done(record("a", seconds=1.0))
    assert "nothing graded" in capsys.readouterr().err
