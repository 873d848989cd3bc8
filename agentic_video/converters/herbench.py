"""HERBench: five options a question, each with several pieces of evidence; twelve tasks, a json array each."""

import json
import re
from collections.abc import Mapping
from typing import Any

from agentic_video.converters.base import BadPart, Converter, Fields, Question, Questions, Split
from agentic_video.types.row import Interval, read_windows
from agentic_video.video.subtitles import seconds

_SPAN = re.compile(r"\s*([\d:.]+)\s*-\s*([\d:.]+)\s*")


def convert(row: Fields, split: str) -> Questions:
    options = row.options("candidates")
    metadata = _metadata(row)
    windows: tuple[Interval, ...] = ()
    try:
        windows = _windows(metadata.get("timestamps"))
    except ValueError as error:
        yield BadPart(f"{row.error('metadata.timestamps', str(error))}; left out of the windows")
    source = metadata.get("source_dataset")
    yield Question(
        id=row.label("question_id"),
        videos=(row.text("video_path"),),
        question=row.text("question"),
        options=options,
        answer=row.gold("answer_index", "index", options),
        extra={
            "category": row.text("task_type"),
            "source_dataset": source if isinstance(source, str) else None,
            **row.kept("video_id"),
        },
        windows=windows,
    )


def _metadata(row: Fields) -> Mapping[str, Any]:
    value = row.raw.get("metadata")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    return value if isinstance(value, Mapping) else {}


def _windows(spans: Any) -> tuple[Interval, ...]:
    """Where the evidence is, of a list like ``["00:08.0-00:09.0", ..]``; none where there is no list."""
    if not isinstance(spans, list) or not spans:
        return ()
    windows = []
    for span in spans:
        found = _SPAN.fullmatch(span) if isinstance(span, str) else None
        if found is None:
            raise ValueError(f"must hold spans like 00:08.0-00:09.0, got {str(span)[:40]!r}")
        windows.append([seconds(found[1]), seconds(found[2])])
    return read_windows(sorted(windows))


CONVERTER = Converter(
    name="herbench",
    title="HERBench",
    source="GitHub and Hugging Face pages of HERBench (arXiv 2512.14870)",
    files="data/tasks/*.json (or the one json file of all tasks, alone in its folder)",
    videos="data/videos/, with its folders (trailers/, HD_EPIC/, PersonPath22/, WildTrack/)",
    splits={"test": Split(("tasks/*.json", "*.json", "*.parquet"), rows=26_806)},
    convert=convert,
)
