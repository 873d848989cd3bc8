"""LVBench: json lines, one a video; the options stand inside ``question`` as "(A) text" lines."""

from functools import partial

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split, each


def convert(row: Fields, split: str) -> Questions:
    if not row.has("qa"):  # the flat release: one question a row
        return [_question(row, row, row.text("key" if row.has("key") else "video_path"))]
    return each(row.children("qa"), partial(_question, row, video=row.text("key")))


def _question(row: Fields, part: Fields, video: str) -> Question:
    if part.has("options"):
        question, options = part.text("question"), part.options("options")
    else:
        question, options = part.question_and_options("question", required=True)
    kinds = part.texts("question_type")
    return Question(
        id=part.label("uid"),
        videos=(video,),
        question=question,
        options=options,
        answer=part.gold("answer", "letter", options),
        extra={
            "category": kinds[0],
            "categories": list(kinds),  # a question counts for each of its types
            "video_type": row.label("type", ""),
            **part.kept("time_reference"),
        },
    )


CONVERTER = Converter(
    name="lvbench",
    title="LVBench",
    licence="CC BY-NC-SA 4.0",
    source="Hugging Face: THUDM/LVBench",
    files="video_info.meta.jsonl",
    videos="the 103 videos as <key>.mp4",
    splits={"test": Split(("video_info.meta.jsonl", "*.parquet"), rows=1_549)},
    convert=convert,
)
