"""TempCompass: four tasks about the same clips; options stand in ``question``, answers have their text."""

import json
import re
from collections.abc import Iterator

from agentic_video.converters import choices
from agentic_video.converters.base import Converter, Fields, Question, Split

_LABELLED = re.compile(r"\s*((?:Caption|Sentence|Option) \w+)\s*:\s*(.+)")


def convert(row: Fields, split: str) -> Iterator[Question]:
    video = row.label("video_id")
    extra = {"category": row.label("dim"), "task": split, "video_id": video}
    options: tuple[str, ...] = ()
    if split == "yes_no":
        question, options = row.text("question"), ("Yes", "No")
        answer = row.gold("answer", "text", options)
    elif split == "multi_choice":
        question, options = choices.split_question(row.text("question"))
        if not options:
            raise row.error("question", "holds no options A, B, ...")
        answer = row.gold("answer", "letter", options)
    elif split == "caption_matching":
        question, options, answer = _matching(row)
    else:  # captioning: a judge answers mc_question from the caption
        question, answer = row.text("question"), row.text("mc_answer")
        extra["mc_question"] = row.text("mc_question")
    yield Question(f"{split}-{row.number}", (video,), question, answer, options, extra)


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
    return Split((f"{name}/*.parquet", f"{name}*.json", f"{name}*.jsonl"), rows=rows)


CONVERTER = Converter(
    name="tempcompass",
    title="TempCompass",
    kind="eval",
    licence="see the source's page",
    source="Hugging Face: lmms-lab/TempCompass",
    files="multi-choice/, yes_no/, caption_matching/, captioning/ with test-*.parquet",
    videos="tempcompass_videos.zip, unpacked",
    splits={
        "multi_choice": _split("multi-choice", 1_580),
        "yes_no": _split("yes_no", 2_453),
        "caption_matching": _split("caption_matching", 1_503),
        "captioning": _split("captioning", 2_004),
    },
    convert=convert,
)
