"""LongVT's released RL rows: verl's form, open-ended questions with the stretch of the video that answers them."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from agentic_video.converters.base import Converter, Fields, Question, Split


def convert(row: Fields, split: str) -> Iterator[Question]:
    videos = row.value("videos")
    video = videos[0] if isinstance(videos, list) and len(videos) == 1 else videos
    if isinstance(video, dict):
        video = video.get("video")
    if not isinstance(video, str) or not video.strip():
        raise row.error("videos", f"must hold one video with its path, got {videos!r:.80}")
    extra = row.child("extra_info")
    number = extra.label("index") if extra.has("index") else str(row.number)
    yield Question(
        id=f"{PurePosixPath(row.file).stem}-{number}",  # the files number their rows apart
        videos=(video.strip().removeprefix("file://"),),
        question=extra.text("question"),
        answer=row.child("reward_model").label("ground_truth"),
        extra={"category": row.label("data_source")},
        windows=extra.windows("video_segment"),
    )


CONVERTER = Converter(
    name="longvt",
    title="LongVT's RL rows",
    kind="both",
    licence="see the source's page",
    source="Hugging Face: longvideotool/LongVT-Parquet",
    files="rl_selfqa_*_cleaned.parquet (or rl.parquet), rl_selfqa_test.parquet; the SFT's beside them aren't read",
    videos="the videos that the rows name",
    splits={
        "train": Split(("rl_selfqa_*_cleaned.parquet", "rl*train*.parquet", "rl.parquet"), rows=1_667),
        "test": Split(("rl_selfqa_test*.parquet", "rl*test*.parquet")),  # what the authors validate with
    },
    convert=convert,
)
