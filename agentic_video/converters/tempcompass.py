"""TempCompass: four tasks about the same clips; options stand in ``question``, answers have their text."""

import json
import re
from functools import partial

from agentic_video.converters import choices
from agentic_video.converters.base import Converter, Fields, Question, Questions, Split, each
from agentic_video.types.row import RowError

_LABELLED = re.compile(r"\s*((?:Caption|Sentence|Option) \w+)\s*:\s*(.+)")


def convert(row: Fields, split: str) -> Questions:
    if not row.key:  # one question a row
        return [_question(row, split, row.label("video_id"), row.label("dim"))]
    return _of_video(row, split)


def _of_video(row: Fields, split: str) -> Questions:
    """The questions of a video by dimension."""
    for dimension in map(str, row.raw):
        try:
            parts = list(row.children(dimension))
        except RowError as error:
            yield error
        else:
            yield from each(parts, partial(_question, split=split, video=row.key, dimension=dimension))


def _question(row: Fields, split: str, video: str, dimension: str) -> Question:
    identity = f"{split}-{video}-{dimension}-{row.number}" if row.key else f"{split}-{row.number}"
    extra = {"category": dimension, "task": split, "video_id": video}
    options: tuple[str, ...] = ()
    if split == "yes_no":
        question, options = row.text("question"), ("Yes", "No")
        answer = row.gold("answer", "text", options)
    elif split == "multi_choice":
        question, options = row.question_and_options("question", required=True)
        answer = row.gold("answer", "letter", options)
    elif split == "caption_matching":
        question, options, answer = _matching(row)
    elif not row.key:  # captioning: a judge answers mc_question from the caption
        question, answer = row.text("question"), row.text("mc_answer")
        extra["mc_question"] = row.text("mc_question")
    else:  # the files by video have it among the multiple-choice questions alone
        question, answer = row.text("question"), row.text("answer")
    return Question(identity, (video,), question, answer, options, extra)


def _matching(row: Fields) -> tuple[str, tuple[str, ...], str]:
    """Lines "Caption A: text" or "Option 1: text", the answer being one of them."""
    lines = [line for line in row.text("question").splitlines() if line.strip()]
    marked = [(line, _LABELLED.fullmatch(line)) for line in lines]
    question = "\n".join(line for line, found in marked if not found)
    labels = [found[1] for _, found in marked if found]
    options = tuple(found[2].strip() for _, found in marked if found)
    if len(options) < 2 or not question:
        raise row.error("question", 'must hold a question and lines like "Caption A: text"')
    given = _LABELLED.fullmatch(row.text("answer"))
    if not given or given[1] not in labels:
        raise row.error("answer", f"must begin with one of {json.dumps(labels)}")
    letter = choices.from_index(labels.index(given[1]), options)
    if given[2].strip() != options[labels.index(given[1])]:
        raise row.error("answer", f"has another text than {given[1]} of the question")
    return question, options, letter


def _split(name: str, rows: int) -> Split:
    patterns = (f"{name}/*.parquet", f"questions/{name}.json", f"{name}*.json", f"{name}*.jsonl")
    return Split(patterns, rows=rows, keyed=True)


CONVERTER = Converter(
    name="tempcompass",
    title="TempCompass",
    source="GitHub: llyx97/TempCompass, Hugging Face: lmms-lab/TempCompass",
    files="questions/{multi-choice,yes_no,caption_matching,captioning}.json (GitHub), or folders of these names with "
    "test-*.parquet (Hugging Face)",
    videos="tempcompass_videos.zip, unpacked",
    splits={
        "multi_choice": _split("multi-choice", 1_580),
        "yes_no": _split("yes_no", 2_453),
        "caption_matching": _split("caption_matching", 1_503),
        "captioning": _split("captioning", 2_004),
    },
    convert=convert,
)
