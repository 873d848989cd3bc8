"""VideoSIAH-Eval: open questions about moments of long videos (LongVT's benchmark); the answers need a judge."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split


def convert(row: Fields, split: str) -> Questions:
    video = row.text("video_path")
    yield Question(
        id=str(row.number),  # the release has none
        videos=(video,),
        question=row.text("question"),
        answer=row.label("answer"),
        extra={"video_name": video},
    )


CONVERTER = Converter(
    name="videosiah_eval",
    title="VideoSIAH-Eval",
    source="Hugging Face: longvideotool/VideoSIAH-Eval",
    files="data/test-*.parquet",
    videos="the archives, unpacked",
    # The paper speaks of 652 questions, the release's own page of 1,280.
    splits={"test": Split(("data/test-*.parquet", "test-*.parquet", "*.parquet", "*.jsonl"))},
    convert=convert,
)
