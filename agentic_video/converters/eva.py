"""EVA's evaluation rows: json lines in verl's form, the question with its options in the prompt's last user message."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from agentic_video.converters import choices
from agentic_video.converters.base import Converter, Fields, Question, Split
from agentic_video.types.row import RowError


def convert(row: Fields, split: str) -> Iterator[Question]:
    videos = row.value("videos")
    video = videos[0] if isinstance(videos, list) and len(videos) == 1 else videos
    if isinstance(video, dict):
        video = video.get("video")
    if not isinstance(video, str) or not video.strip():
        raise row.error("videos", f"must hold one path, got {videos!r:.80}")
    try:
        question, options = choices.split_question(_asked(row))
    except choices.ChoiceError as error:
        raise row.error("prompt", str(error)) from None
    if not question:
        raise row.error("prompt", "holds no question")
    gold = row.child("reward_model")
    answer = choices.in_tags(gold.label("ground_truth"))
    if not options and choices.is_letter(answer):
        raise row.error("prompt", f"holds no options A, B, ..., but the answer is {answer!r}")
    if options:
        answer = gold.gold("ground_truth", "letter", options)
    yield Question(
        id=f"{PurePosixPath(row.file).stem}-{row.label('index')}",
        videos=(video.removeprefix("file://"),),
        question=question,
        options=options,
        answer=answer,
        extra={"category": PurePosixPath(row.file).stem, **gold.kept("style", "reward_fn")},
    )


def _asked(row: Fields) -> str:
    """The text of the last user message."""
    for message in reversed(list(row.children("prompt"))):
        if isinstance(message, RowError):
            raise message
        if message.text("role") == "user":
            content: Any = message.value("content")
            if isinstance(content, list):
                content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
            if not isinstance(content, str) or not content.strip():
                raise message.error("content", "must hold text")
            # Two of the files write a line break as a backslash and an n.
            return content if "\n" in content else content.replace("\\n", "\n")
    raise row.error("prompt", "has no user message")


CONVERTER = Converter(
    name="eva",
    title="EVA's evaluation rows",
    kind="eval",
    licence="see the source's page",
    source="EVA's released evaluation code",
    files="the benchmark's *.jsonl (or the file itself as --source)",
    videos="the benchmark's videos",
    splits={"test": Split(("*.jsonl",))},
    convert=convert,
)
