"""FrameThinker's parquet: the question with its options in ``extra_info``, the gold in ``reward_model``.

The form is that of the released code and of the one row that its author has shown. The pictures in ``images`` are not
read. The paths are the authors' own: the video is found by the last parts.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from agentic_video.converters import choices
from agentic_video.converters.base import Converter, Fields, Question, Split
from agentic_video.converters.longvideo_reason import video_names


def convert(row: Fields, split: str) -> Iterator[Question]:
    extra, gold = row.child("extra_info"), row.child("reward_model")
    question, options = extra.question_and_options("question")
    answer = choices.in_tags(gold.label("ground_truth"))
    if not options and choices.is_letter(answer):
        raise extra.error("question", f"holds no options A, B, ..., but the answer is {answer!r}")
    if options:
        answer = gold.gold("ground_truth", "letter", options)
    source = row.label("data_source")
    yield Question(
        id=f"{PurePosixPath(row.file).stem}-{source}-{extra.label('index')}",
        videos=video_names(extra.text("video_path")),
        question=question,
        options=options,
        answer=answer,
        extra={
            "category": source,
            **{name: extra.number_of(name) for name in ("fps", "total_frames", "height", "width") if extra.has(name)},
        },
    )


CONVERTER = Converter(
    name="framethinker",
    title="FrameThinker's RL rows",
    kind="train",
    licence="see the source's page",
    source="not released: GitHub's lcqysl/FrameThinker-RL names the sets that it was made of",
    files="the RL rows' *.parquet, alone in their folder (or the file itself as --source)",
    videos="the videos that the rows name (Video-Holmes', LongVideo-Reason's, CG-Bench's, ...)",
    splits={"train": Split(("*.parquet",), skip_columns=frozenset({"images", "prompt"}))},
    convert=convert,
)
