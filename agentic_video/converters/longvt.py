"""LongVT's released RL rows: verl's form, open-ended questions with the stretch of the video that answers them."""

from collections.abc import Iterator

from agentic_video.converters.base import Converter, Fields, Question, Split


def convert(row: Fields, split: str) -> Iterator[Question]:
    videos = row.value("videos")
    video = videos[0] if isinstance(videos, list) and len(videos) == 1 else videos
    if isinstance(video, dict):
        video = video.get("video")
    if not isinstance(video, str) or not video.strip():
        raise row.error("videos", f"must hold one video with its path, got {videos!r:.80}")
    extra = row.child("extra_info")
    yield Question(
        id=extra.label("index") if extra.has("index") else str(row.number),
        videos=(video.strip().removeprefix("file://"),),
        question=extra.text("question"),
        answer=row.child("reward_model").label("ground_truth"),
        extra={"category": row.label("data_source")},
        windows=extra.windows("video_segment"),
    )


CONVERTER = Converter(
    name="longvt",
    title="LongVT's RL rows",
    kind="train",
    licence="see the source's page",
    source="GitHub: EvolvingLMMs-Lab/LongVT (its data links)",
    files="the RL rows' *.parquet, alone in their folder (or the file itself as --source)",
    videos="the videos that the rows name",
    splits={"train": Split(("*.parquet",), rows=1_667)},
    convert=convert,
)
