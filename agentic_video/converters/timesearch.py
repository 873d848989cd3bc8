"""TimeSearch-R's rows: json lines with question, target and kind of question; options stand in the question."""

import json

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split
from agentic_video.types.row import Interval, read_windows

KINDS = ("multiple_choice", "open_ended", "grounding", "sequence")


def convert(row: Fields, split: str) -> Questions:
    target = row.child("target")
    question, options = row.question_and_options("question")
    kind = row.one_of("type", KINDS) if row.has("type") else "multiple_choice" if options else "open_ended"
    if not question:
        raise row.error("question", "holds no question")
    if (kind == "multiple_choice") != bool(options):
        raise row.error("question", f"holds {len(options)} options, but its type is {kind}")
    windows = _windows(target) if kind == "grounding" else ()
    answer = "" if windows else target.gold("answer", "letter", options) if options else target.label("answer")
    yield Question(
        id=row.label("id", f"{row.stem}-{row.number}"),
        videos=(row.text("video"),),
        question=question,
        options=options,
        answer=answer,
        extra={"type": kind, "category": kind, "duration": row.duration()},
        answer_type="interval" if windows else None,
        windows=windows,
    )


def _windows(target: Fields) -> tuple[Interval, ...]:
    """The gold interval: ``{"start_time": .., "end_time": ..}`` in seconds, as an object or as its text."""
    value = target.value("answer")
    try:
        value = json.loads(value) if isinstance(value, str) else value
        windows = read_windows([[value["start_time"], value["end_time"]]])
    except (ValueError, RecursionError, KeyError, TypeError):
        windows = ()
    if not windows or not windows[0][0] < windows[0][1]:
        raise target.error("answer", "must hold start_time and end_time in seconds, in this order")
    return windows


CONVERTER = Converter(
    name="timesearch",
    title="TimeSearch-R's rows",
    kind="both",
    source="not released: GitHub's Time-Search/TimeSearch-R has their form",
    files="the *.jsonl files (or one of them as --source)",
    videos="the videos of the sets that the rows are from",
    splits={"train": Split(("*.jsonl",))},
    convert=convert,
)
