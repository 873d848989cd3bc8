"""DREAM-1K: json lines with a reference description and its events. Open ended: needs a judge."""

from collections.abc import Iterator

from agentic_video.converters import choices
from agentic_video.converters.base import Converter, Fields, Question, Split


def convert(row: Fields, split: str) -> Iterator[Question]:
    text, extra = row.child("text"), row.child("extra_info")
    video = row.label("vid") if row.has("vid") else row.label("idx")
    named = row.text("video_file") if row.has("video_file") else ""
    # The release leaves a placeholder in video_file.
    videos = (video,) if not named or named.startswith("<") else (named, video)
    yield Question(
        id=row.label("idx"),
        videos=videos,
        question=choices.clean(text.text("prompt")),
        answer=text.text("response"),
        extra={
            "category": row.text("dataset").removeprefix("DREAM/"),
            "events": list(extra.texts("events")),
            "duration": extra.length_of("duration") if extra.has("duration") else None,
            **extra.kept("n_subjects", "n_shots"),
        },
    )


CONVERTER = Converter(
    name="dream1k",
    title="DREAM-1K",
    kind="eval",
    licence="see the source's page",
    source="GitHub: bytedance/tarsier (data/annotations), Hugging Face: omni-research/DREAM-1K (videos)",
    files="DREAM-1k.jsonl",
    videos="video/video.zip, unpacked: <vid>.mp4",
    splits={"test": Split(("DREAM-1[kK].jsonl", "*.jsonl"), rows=1_000)},
    convert=convert,
)
