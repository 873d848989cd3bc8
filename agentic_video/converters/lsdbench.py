"""LSDBench: options as an object with letters; no ids are published, so file and position serve."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split


def convert(row: Fields, split: str) -> Questions:
    options, video = row.options("options"), row.label("video_id")
    yield Question(
        id=row.label("question_id", f"{video}-{row.number}"),
        videos=(video,),
        question=row.text("question"),
        options=options,
        answer=row.gold("correct_answer", "letter", options),
        extra={"video_id": video, "time_range": _range(row), **row.kept("original_question")},
    )


def _range(row: Fields) -> str:
    """Where the answer is, as ``HH:MM:SS-HH:MM:SS``: published as an object, or as a text."""
    if not row.has("time_range"):
        return ""
    if isinstance(row.raw["time_range"], str):
        return row.text("time_range")
    span = row.child("time_range")
    return f"{span.text('start')}-{span.text('end')}"


CONVERTER = Converter(
    name="lsdbench",
    title="LSDBench",
    source="Hugging Face: TainU/LSDBench",
    files="mc_qa_annotations_*.json or test-*.parquet",
    videos="the 400 videos as <video_id>.mp4",
    splits={"test": Split(("mc_qa_annotations*.json", "*.parquet", "*.json", "*.jsonl"), rows=1_304)},
    convert=convert,
)
