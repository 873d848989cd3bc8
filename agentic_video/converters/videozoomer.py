"""VideoZoomer's released RL rows: options inside ``problem``, one video in a list, the kind of answer in extra_info."""

from agentic_video.converters import choices
from agentic_video.converters.base import Converter, Fields, Question, Questions, Split
from agentic_video.converters.longvideo_reason import video_names

KINDS = ("multiple_choice", "open_ended")


def convert(row: Fields, split: str) -> Questions:
    videos = row.texts("videos")
    if len(videos) != 1:
        raise row.error("videos", f"must hold one video, got {len(videos)}")
    kind = row.child("extra_info").one_of("answer_type", KINDS)
    question, options = choices.clean(row.text("problem")), tuple[str, ...]()
    answer = choices.in_tags(row.text("solution"))
    if kind == "multiple_choice":
        question, options = row.question_and_options("problem", required=True)
        answer = row.gold("solution", "letter", options)
    yield Question(
        row.label("doc_id"),
        video_names(videos[0]),
        question,
        answer,
        options,
        {"category": row.label("data_source"), "kind": kind},
    )


CONVERTER = Converter(
    name="videozoomer",
    title="VideoZoomer's RL rows",
    kind="train",
    source="Hugging Face: zsgvivo/rl_datasets",
    files="the RL rows as json, jsonl or parquet, alone in their folder (or the file itself as --source)",
    videos="the videos that the rows name (LongVideo-Reason's, LLaVA-Video's, ...)",
    splits={"train": Split(("*.parquet", "*.jsonl", "*.json"))},
    convert=convert,
)
