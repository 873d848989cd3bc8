"""NExT-GQA: NExT-QA's csv with the answer as a text, and the evidence's windows in another json file."""

from contextlib import suppress

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split
from agentic_video.types.row import Interval, RowError

_OPTIONS = ("a0", "a1", "a2", "a3", "a4")


def convert(row: Fields, split: str) -> Questions:
    options, video = tuple(row.label(name) for name in _OPTIONS), row.label("video_id")
    qid = row.label("qid")
    try:
        grounds = Fields(row.extra, f"gsub_{split}.json").child(video)
        windows = _windows(grounds.child("location"), qid)
        duration = grounds.length_of("duration")
    except RowError as error:
        raise row.error("qid", f"has no evidence: {error}") from None
    yield Question(
        id=f"{video}-{qid}",  # a qid counts within its video
        videos=(video,),
        question=row.text("question"),
        options=options,
        answer=row.gold("answer", "text", options),
        extra={
            "category": row.label("type"),
            "video_id": video,
            "duration": duration,
            **row.kept("qid", "frame_count"),
        },
        windows=windows,
    )


def _windows(location: Fields, qid: str) -> tuple[Interval, ...]:
    """A question's windows; some of the published ones begin some tenths of a second before the video does."""
    value = location.value(qid)
    with suppress(TypeError, ValueError):  # reported below
        value = [[0.0 if -1 < start < 0 else start, end] for start, end in value]
    return Fields({qid: value}, location.where, prefix=location.prefix).windows(qid)


CONVERTER = Converter(
    name="nextgqa",
    title="NExT-GQA",
    licence="MIT (annotations)",
    source="GitHub: doc-doc/NExT-GQA",
    files="datasets/nextgqa/: test.csv with gsub_test.json, val.csv with gsub_val.json",
    videos="the VidOR videos, as VidOR has them (1101/4010069381.mp4) or flat",
    splits={
        "test": Split(("nextgqa/test.csv", "test.csv"), rows=5_553, extra_file=("gsub_test.json",)),
        "val": Split(("nextgqa/val.csv", "val.csv"), rows=3_358, extra_file=("gsub_val.json",)),
    },
    convert=convert,
)
