"""VideoEval-Pro: questions of four long-video benchmarks without their options; short answers, for a judge."""

from collections.abc import Iterator

from agentic_video.converters.base import Converter, Fields, Question, Split

TYPES = ("Local Perception", "Local Reasoning", "Holistic Perception", "Holistic Reasoning")


def convert(row: Fields, split: str) -> Iterator[Question]:
    kind, video = row.text("qa_type"), row.text("video")
    if kind not in TYPES:
        raise row.error("qa_type", f"must be one of {TYPES}, got {kind!r}")
    options = row.options("options") if split == "mcq" else ()
    yield Question(
        id=str(row.number),  # the release has none
        videos=(video,),
        question=row.text("question"),
        options=options,
        answer=row.gold("answer", "letter", options) if options else row.text("answer_text"),
        extra={"category": kind, "video_name": video, **row.kept("qa_subtype", "source")},
    )


_FILES = ("data/test-*.parquet", "test-*.parquet", "*.parquet", "*.jsonl")
CONVERTER = Converter(
    name="videoeval_pro",
    title="VideoEval-Pro",
    source="Hugging Face: TIGER-Lab/VideoEval-Pro",
    files="data/test-*.parquet",
    videos="videos_part_*.tar.gz, joined and unpacked",
    splits={"open": Split(_FILES, rows=1_289), "mcq": Split(_FILES, rows=1_289)},
    convert=convert,
)
