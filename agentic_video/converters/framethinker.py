"""FrameThinker's parquet: the question with its options in ``extra_info``, the gold in ``reward_model``.

The form is that of the released code and of the one row that its author has shown. The pictures in ``images`` are not
read. The paths are the authors' own: the video is found by the last parts.
"""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split
from agentic_video.converters.longvideo_reason import video_names


def convert(row: Fields, split: str) -> Questions:
    extra, gold = row.child("extra_info"), row.child("reward_model")
    question, options = extra.question_and_options("question")
    source = row.label("data_source")
    yield Question(
        id=f"{row.stem}-{source}-{extra.label('index')}",
        videos=video_names(extra.text("video_path")),
        question=question,
        options=options,
        answer=gold.answer("ground_truth", options, extra.error("question", "holds no options A, B, ...")),
        extra={
            "category": source,
            **{name: extra.number_of(name) for name in ("fps", "total_frames", "height", "width") if extra.has(name)},
        },
    )


CONVERTER = Converter(
    name="framethinker",
    title="FrameThinker's RL rows",
    kind="train",
    source="not released: GitHub's lcqysl/FrameThinker-RL names the sets that it was made of",
    files="the RL rows' *.parquet, alone in their folder (or the file itself as --source)",
    videos="the videos that the rows name (Video-Holmes', LongVideo-Reason's, CG-Bench's, ...)",
    splits={"train": Split(("*.parquet",), skip_columns=frozenset({"images", "prompt"}))},
    convert=convert,
)
