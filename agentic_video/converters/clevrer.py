"""CLEVRER: a json array of scenes with their questions.

Descriptive questions are open ended (a word or a number). The others have options of which several may be right: those
with exactly one become multiple choice, the rest don't fit the schema and are counted as unsupported.
"""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split, UnsupportedRow, each
from agentic_video.types.row import LETTERS


def convert(row: Fields, split: str) -> Questions:
    video, scene = row.text("video_filename"), row.label("scene_index")
    return each(row.children("questions"), lambda part: _question(part, video, scene))


def _question(part: Fields, video: str, scene: str) -> Question:
    identity, kind = f"{scene}-{part.label('question_id')}", part.text("question_type")
    extra = {"category": kind, "scene_index": scene, **part.kept("question_subtype")}
    question = part.text("question")
    if kind == "descriptive":
        return Question(identity, (video,), question, part.label("answer"), extra=extra)
    options: list[str] = []
    right: list[int] = []
    for choice in part.objects("choices"):
        if choice.one_of("answer", ("correct", "wrong")) == "correct":
            right.append(len(options))
        options.append(choice.text("choice"))
    if len(right) != 1 or len(options) < 2:
        message = f"{len(right)} of {len(options)} options are right; only questions with one right option are rows"
        raise UnsupportedRow(f"{part.where}: field '{part.prefix}choices': {message}")
    return Question(identity, (video,), question, LETTERS[right[0]], tuple(options), extra)


CONVERTER = Converter(
    name="clevrer",
    title="CLEVRER",
    kind="both",
    licence="CC0",
    source="clevrer.csail.mit.edu",
    files="train.json, validation.json (questions; the test split's answers are not published)",
    videos="video_train/, video_validation/",
    splits={"train": Split(("train.json",)), "val": Split(("validation.json",))},
    convert=convert,
)
