"""LongTimeScope: short clips hidden in videos of many hours; the options stand inside ``input``."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

TYPES = ("QA", "OCR", "temporal")


def convert(row: Fields, split: str) -> Questions:
    kind = row.one_of("type", TYPES)
    question, options = row.question_and_options("input", required=True)
    length = row.length_of("length")
    yield Question(
        # the first release numbers the questions of each type
        id=row.label("id") if row.has("id") else f"{kind}-{row.label('index')}",
        videos=(row.text("video"),),
        question=question,
        options=options,
        answer=row.gold("answer", "letter", options),
        extra={
            "category": kind,
            "duration": length,
            "duration_name": f"{length / 3600:g} h" if length >= 3600 else f"{length:g} s",
        },
    )


_FILES = ("data/test-*.parquet", "test-*.parquet", "*.parquet", "*.jsonl")
CONVERTER = Converter(
    name="longtimescope",
    title="LongTimeScope",
    source="Hugging Face: Apollo-LMMs/LongTimeScope",
    files="data/test-*.parquet",
    videos="the archives, unpacked",
    splits={"test": Split(_FILES, rows=450)},
    convert=convert,
)
