"""LongVT's released RL rows: verl's form, open-ended questions with the stretch of the video that answers them."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split


def convert(row: Fields, split: str) -> Questions:
    extra = row.child("extra_info")
    number = extra.label("index") if extra.has("index") else str(row.number)
    yield Question(
        id=f"{row.stem}-{number}",  # the files number their rows apart
        videos=(row.path_of("videos"),),
        question=extra.text("question"),
        answer=row.child("reward_model").label("ground_truth"),
        extra={"category": row.label("data_source")},
        windows=extra.windows("video_segment"),
    )


CONVERTER = Converter(
    name="longvt",
    title="LongVT's RL rows",
    kind="both",
    source="Hugging Face: longvideotool/LongVT-Parquet",
    files="rl_selfqa_*_cleaned.parquet (or rl.parquet), rl_selfqa_test.parquet; the SFT's aren't read",
    videos="the videos that the rows name",
    splits={
        "train": Split(("rl_selfqa_*_cleaned.parquet", "rl*train*.parquet", "rl.parquet"), rows=1_667),
        "test": Split(("rl_selfqa_test*.parquet", "rl*test*.parquet")),  # what the authors validate with
    },
    convert=convert,
)
