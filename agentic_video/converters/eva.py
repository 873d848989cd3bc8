"""EVA's evaluation rows: json lines in verl's form, the question with its options in the prompt's last user message."""

from typing import Any

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split


def convert(row: Fields, split: str) -> Questions:
    video, gold = row.path_of("videos"), row.child("reward_model")
    question, options = Fields({"prompt": _asked(row)}, row.where).question_and_options("prompt")
    if not question:
        raise row.error("prompt", "holds no question")
    yield Question(
        id=f"{row.stem}-{row.label('index')}",
        videos=(video,),
        question=question,
        options=options,
        answer=gold.answer("ground_truth", options, row.error("prompt", "holds no options A, B, ...")),
        extra={"category": row.stem, **gold.kept("style", "reward_fn")},
    )


def _asked(row: Fields) -> str:
    """The text of the last user message."""
    for message in reversed(list(row.objects("prompt"))):
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
    source="EVA's released evaluation code",
    files="the benchmark's *.jsonl (or the file itself as --source)",
    videos="the benchmark's videos",
    splits={"test": Split(("*.jsonl",))},
    convert=convert,
)
