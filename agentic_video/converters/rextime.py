"""ReXTime: four options, the right one's letter, and the window of its evidence."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split


def convert(row: Fields, split: str) -> Questions:
    options, video = row.options("options"), row.text("vid")
    yield Question(
        id=row.label("qid"),
        videos=(video,),
        question=row.text("question"),
        options=options,
        answer=row.gold("ans", "letter", options),
        extra={
            "category": row.label("category"),
            "video_id": video,
            "duration": row.duration(),
            **row.kept("source"),
        },
        windows=row.windows("span"),
    )


CONVERTER = Converter(
    name="rextime",
    title="ReXTime",
    kind="both",
    licence="CC BY-NC-SA 4.0 (annotations)",
    source="Hugging Face: ReXTime/ReXTime",
    files=(
        "rextime_val.json, rextime_train.json (or parquet of these splits); GitHub's rextime_val.jsonl lacks the "
        "options, and the test split's answers are not published"
    ),
    videos="the videos of ActivityNet (v_*.mp4) and QVHighlights, below one folder",
    splits={
        "val": Split(("rextime_val.json", "val*-*.parquet"), rows=921),
        "train": Split(("rextime_train.json", "train-*.parquet"), rows=9_695),
    },
    convert=convert,
)
