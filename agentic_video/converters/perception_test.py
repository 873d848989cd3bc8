"""Perception Test, multiple choice: an object of videos with their questions, or one question a row."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split, each


def convert(row: Fields, split: str) -> Questions:
    if not row.key:  # the flat release
        return [_question(row, row.text("video_name"), "question_id")]
    if not row.has("mc_question"):
        return []  # a video without questions of this kind
    return each(row.children("mc_question"), lambda part: _question(part, row.key, "id"))


def _question(part: Fields, video: str, identity: str) -> Question:
    options = part.options("options")
    return Question(
        id=f"{video}-{part.label(identity)}",  # an id counts within its video
        videos=(video,),
        question=part.text("question"),
        options=options,
        answer=part.gold("answer_id", "index", options),
        extra={"category": part.label("area"), "video_id": video, "tags": _tags(part), **part.kept("reasoning")},
    )


def _tags(part: Fields) -> list[str]:
    tags = part.raw.get("tag") or []
    return [tags] if isinstance(tags, str) else [str(tag) for tag in tags]


CONVERTER = Converter(
    name="perception_test",
    title="Perception Test (multiple choice)",
    kind="both",
    licence="CC BY 4.0",
    source="GitHub: google-deepmind/perception_test",
    files="mc_question_train.json, mc_question_valid.json (or all_train.json, all_valid.json; or the parquet of "
    "Hugging Face: lmms-lab/PerceptionTest_Val); the test split's answers are not published",
    videos="videos/",
    splits={
        "train": Split(("mc_question_train.json", "all_train.json"), rows=7_392, keyed=True),
        "val": Split(
            ("mc_question_valid.json", "all_valid.json", "mc_question_val/*.parquet"), rows=19_140, keyed=True
        ),
    },
    convert=convert,
)
