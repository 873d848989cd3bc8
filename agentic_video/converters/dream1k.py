"""DREAM-1K: json lines with a reference description and its events. Open ended: needs a judge."""

from agentic_video.converters import choices
from agentic_video.converters.base import Converter, Fields, Question, Questions, Split


def convert(row: Fields, split: str) -> Questions:
    extra = row.child("extra_info")
    video = row.label("vid", row.label("idx"))
    prompt, reference, named = _messages(row) if row.has("messages") else _text(row)
    # The release leaves a placeholder in video_file.
    videos = (video,) if not named or named.startswith("<") else (named, video)
    yield Question(
        id=row.label("idx"),
        videos=videos,
        question=prompt,
        answer=reference,
        extra={
            "category": row.text("dataset").removeprefix("DREAM/"),
            "events": list(extra.texts("events")),
            "duration": extra.duration(),
            **extra.kept("n_subjects", "n_shots"),
        },
    )


def _text(row: Fields) -> tuple[str, str, str]:
    """Prompt, reference and video file of the first release."""
    text = row.child("text")
    named = row.text("video_file") if row.has("video_file") else ""
    return choices.clean(text.text("prompt")), text.text("response"), named


def _messages(row: Fields) -> tuple[str, str, str]:
    """Prompt, reference and video file of the release of January 2025: messages of text and video parts."""
    prompt, reference, named = "", "", ""
    for message in row.objects("messages"):
        for part in message.objects("content"):
            if part.has("video"):
                video = part.child("video")
                named = video.text("video_file") if video.has("video_file") else ""
            elif part.has("reference"):
                reference = part.text("reference")
            elif part.has("text"):
                prompt = choices.clean(part.text("text"))
    if not prompt or not reference:
        raise row.error("messages", f"hold no {'reference' if prompt else 'text that asks for a description'}")
    return prompt, reference, named


CONVERTER = Converter(
    name="dream1k",
    title="DREAM-1K",
    source="GitHub: bytedance/tarsier (data/annotations), Hugging Face: omni-research/DREAM-1K (videos)",
    files="DREAM-1k.jsonl",
    videos="video/video.zip, unpacked: <vid>.mp4",
    splits={"test": Split(("DREAM-1[kK].jsonl", "*.jsonl"), rows=1_000)},
    convert=convert,
)
