"""LongVideoBench: a json array with the answer as a number, or parquet with option0 .. option4 ("N/A" for none)."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

_OPTIONS = ("option0", "option1", "option2", "option3", "option4")
OFFSET = "starting_timestamp_for_subtitles"
_GROUPS = {"15": "8-15 s", "60": "15-60 s", "600": "3-10 min", "3600": "15-60 min"}


def convert(row: Fields, split: str) -> Questions:
    if row.has("candidates"):
        options = row.options("candidates")
    else:
        options = tuple(row.label(name) for name in _OPTIONS if row.has(name) and row.raw[name] != "N/A")
        if len(options) < 2:
            raise row.error("candidates", "is missing, and so are option0, option1, ...")
    video, group, subtitles = row.text("video_path"), row.label("duration_group"), row.label("subtitle_path", "")
    yield Question(
        id=row.label("id"),
        videos=(video,),
        question=row.text("question"),
        options=options,
        answer=row.gold("correct_choice", "index", options),
        extra={
            "category": row.label("question_category"),
            "duration": row.length_of("duration"),
            "duration_name": _GROUPS.get(group, group),
            **row.kept("duration_group", "topic_category", "video_id"),
        },
        subtitles=(f"subtitles/{subtitles}", subtitles) if subtitles else (),
        subtitle_offset=row.number_of(OFFSET) if row.has(OFFSET) else 0.0,
    )


CONVERTER = Converter(
    name="longvideobench",
    title="LongVideoBench",
    licence="CC BY-NC-SA 4.0",
    source="Hugging Face: longvideobench/LongVideoBench",
    files="lvb_val.json (or validation-*.parquet); subtitles.tar, unpacked, for --subtitles. The test split's "
    "answers are not published",
    videos="videos.tar.part.*, joined and unpacked",
    splits={"val": Split(("lvb_val.json", "validation-*.parquet"), rows=1_337)},
    convert=convert,
    subtitles=True,
)
