"""VideoEval-Pro: questions of four long-video benchmarks without their options; short answers, for a judge."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

TYPES = ("Local Perception", "Local Reasoning", "Holistic Perception", "Holistic Reasoning")


def convert(row: Fields, split: str) -> Questions:
    kind, video = row.one_of("qa_type", TYPES), row.text("video")
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
