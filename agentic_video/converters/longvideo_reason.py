"""LongVideo-Reason: json lines with the options inside ``problem`` and the answer in ``<answer>`` tags."""

from pathlib import PurePosixPath

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

FOLDER = "longvila_videos"
"""The folder that published rows name; the archives unpack into others."""


def video_names(path: str) -> tuple[str, ...]:
    """Names under which the video of another set's row may lie.

    One of this set, which has :data:`FOLDER` in its path, may lie in any folder: the names are YouTube's, so one is
    enough.
    """
    published = PurePosixPath(path)
    return (path, published.name) if FOLDER in published.parent.parts else (path,)


def convert(row: Fields, split: str) -> Questions:
    question, options = row.question_and_options("problem")
    answer = row.answer("answer", options, row.error("problem", "holds no options A, B, ..."))
    if not question:
        raise row.error("problem", "holds options without a question")
    video = row.text("videos")
    yield Question(
        id=row.label("problem_id"),
        videos=(video, PurePosixPath(video).name),
        question=question,
        options=options,
        answer=answer,
        extra={"category": row.label("problem_type"), **row.kept("data_type", "reasoning")},
    )


CONVERTER = Converter(
    name="longvideo_reason",
    title="LongVideo-Reason",
    kind="both",
    source="Hugging Face: LongVideo-Reason/longvideo-reason",
    files="train*.jsonl, test*.jsonl (or parquet)",
    videos="the archives, unpacked, in whatever folders",
    splits={
        "train": Split(("train*.jsonl", "train*.json", "train*.parquet")),
        "test": Split(("test*.jsonl", "test*.json", "test*.parquet"), rows=1_000),
    },
    convert=convert,
)
