"""Video-MMMU: three configurations (perception, comprehension, adaptation), multiple choice and open ended."""

import ast

from agentic_video.converters import choices
from agentic_video.converters.base import Converter, Fields, Question, Questions, Split, each

STAGES = ("Perception", "Comprehension", "Adaptation")
IMAGE_NOTE = "The image that the following question is about (<image 1>) is shown at the end of the video."
"""The videos of the adaptation stage end with the question's picture, as the benchmark's own prompt says too."""


def convert(row: Fields, split: str) -> Questions:
    return each(row.members(), _question) if row.key else [_question(row)]


def _question(row: Fields) -> Question:
    identity = row.text("id")
    stage = next((name for name in STAGES if name.lower() in (row.key or row.file).lower()), "")
    if not stage:
        raise row.error("id", f"belongs to no stage: {row.file} is named after none of {', '.join(STAGES)}")
    kind = row.text("question_type") if row.has("question_type") else "multiple-choice"
    extra = {"category": stage, "question_type": kind, "video_name": identity, "subject": _subject(identity)}
    question = choices.clean(row.text("question"))
    if stage == "Adaptation":
        question = f"{IMAGE_NOTE}\n{question}"
    if kind == "multiple-choice":
        options = row.options("options")
        answer, bare = row.gold("answer", "letter", options), options
    else:
        answer, bare = _reference(row), ()
    return Question(f"{stage.lower()}-{identity}", (identity,), question, answer, bare, extra)


def _reference(row: Fields) -> str:
    """The reference answer; several ("['12', '12.0']") become one line."""
    answer = row.label("answer")
    if not answer.startswith("["):
        return answer
    try:
        several = ast.literal_eval(answer)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        several = None
    if not isinstance(several, list) or not several:
        raise row.error("answer", f"must be an answer or a list of answers like \"['12', '12.0']\", got {answer!r}")
    return " or ".join(map(str, several))


def _subject(identity: str) -> str:
    """``Art_Theory`` of ``dev_Art_Theory_3``."""
    parts = identity.split("_")
    return "_".join(parts[1:-1]) if len(parts) > 2 else ""


def _split(stage: str) -> Split:
    return Split((f"{stage}/*.parquet", f"{stage.lower()}_video.json"), rows=300, keyed=True)


CONVERTER = Converter(
    name="video_mmmu",
    title="Video-MMMU",
    source="GitHub: EvolvingLMMs-Lab/VideoMMMU (annotations), Hugging Face: lmms-lab/VideoMMMU",
    files="data/{perception,comprehension,adaptation}_video.json (GitHub), or Perception/, Comprehension/, Adaptation/ "
    "with test-*.parquet (Hugging Face)",
    videos="the zips, unpacked: Art/, Business/, ...",
    splits={
        "all": Split(("[PCA]*ion/*.parquet", "[pca]*ion_video.json"), rows=900, keyed=True),
        "perception": _split("Perception"),
        "comprehension": _split("Comprehension"),
        "adaptation": _split("Adaptation"),
    },
    convert=convert,
)
