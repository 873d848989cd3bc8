"""Video-R1's RL rows: a json array of questions about videos and pictures; options in a list, the answer in tags.

The rows about pictures aren't read.
"""

from agentic_video.converters import choices
from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

CHOICE, OPEN = "multiple choice", ("numerical", "OCR", "free-form", "regression")
"""The values of ``problem_type``."""


def convert(row: Fields, split: str) -> Questions:
    kind, shown = row.one_of("problem_type", (CHOICE, *OPEN)), row.one_of("data_type", ("video", "image"))
    if shown == "image" or (kind == CHOICE) != (split == "multi_choice"):
        return
    options: tuple[str, ...] = ()
    answer = choices.in_tags(row.label("solution"))
    if kind == CHOICE:
        options = row.options("options")
        answer = row.gold("solution", "letter", options)
    elif not answer:
        raise row.error("solution", "holds empty <answer> tags")
    yield Question(
        id=row.label("problem_id"),
        videos=(row.text("path"),),
        question=choices.clean(row.text("problem")),
        options=options,
        answer=answer,
        extra={"category": row.label("data_source", kind), "kind": kind},
    )


_FILES = ("Video-R1-260k.json",)
CONVERTER = Converter(
    name="video_r1",
    title="Video-R1's RL rows",
    kind="train",
    licence="Apache-2.0",
    source="Hugging Face: Video-R1/Video-R1-data",
    files="Video-R1-260k.json",
    videos="the video archives, unpacked: CLEVRER/, LLaVA-Video-178K/, NeXT-QA/, PerceptionTest/, STAR/",
    splits={"multi_choice": Split(_FILES), "open_ended": Split(_FILES)},
    convert=convert,
)
