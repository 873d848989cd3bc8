"""Video-MMMU: three configurations (perception, comprehension, adaptation), multiple choice and open ended."""

import ast
from collections.abc import Iterator

from agentic_video.converters import choices
from agentic_video.converters.base import Converter, Fields, Question, Split

STAGES = ("Perception", "Comprehension", "Adaptation")


def convert(row: Fields, split: str) -> Iterator[Question]:
    identity = row.text("id")
    stage = next((name for name in STAGES if name.lower() in row.file.lower()), "")
    if not stage:
        raise row.error("id", f"belongs to no stage: {row.file} is named after none of {', '.join(STAGES)}")
    kind = row.text("question_type") if row.has("question_type") else "multiple-choice"
    extra = {"category": stage, "question_type": kind, "video_name": identity, "subject": _subject(identity)}
    question = choices.clean(row.text("question"))
    if kind == "multiple-choice":
        options = row.options("options")
        answer, bare = row.gold("answer", "letter", options), options
    else:
        answer, bare = _reference(row), ()
    yield Question(f"{stage.lower()}-{identity}", (identity,), question, answer, bare, extra)


def _reference(row: Fields) -> str:
    """The reference answer; several ("['12', '12.0']") become one line."""
    answer = row.label("answer")
    if answer.startswith("["):
        try:
            several = ast.literal_eval(answer)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return answer
        if isinstance(several, list) and several:
            return " or ".join(map(str, several))
    return answer


def _subject(identity: str) -> str:
    """``Art_Theory`` of ``dev_Art_Theory_3``."""
    parts = identity.split("_")
    return "_".join(parts[1:-1]) if len(parts) > 2 else ""


def _split(stage: str) -> Split:
    return Split((f"{stage}/*.parquet",), rows=300)


CONVERTER = Converter(
    name="video_mmmu",
    title="Video-MMMU",
    kind="eval",
    licence="see the source's page",
    source="Hugging Face: lmms-lab/VideoMMMU",
    files="Perception/, Comprehension/, Adaptation/ with test-*.parquet",
    videos="the zips, unpacked: Art/, Business/, ...",
    splits={
        "all": Split(("[PCA]*ion/*.parquet",), rows=900),
        "perception": _split("Perception"),
        "comprehension": _split("Comprehension"),
        "adaptation": _split("Adaptation"),
    },
    convert=convert,
)
