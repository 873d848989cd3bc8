"""NExT-QA, multiple choice: csv with the options in a0 .. a4 and the answer as a number from 0."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

_OPTIONS = ("a0", "a1", "a2", "a3", "a4")


def convert(row: Fields, split: str) -> Questions:
    options, video = tuple(row.label(name) for name in _OPTIONS), row.label("video")
    yield Question(
        id=f"{video}-{row.label('qid')}",  # a qid counts within its video
        videos=(video,),
        question=row.text("question"),
        options=options,
        answer=row.gold("answer", "index", options),
        extra={"category": row.label("type"), "video_id": video, **row.kept("qid", "frame_count")},
    )


CONVERTER = Converter(
    name="nextqa",
    title="NExT-QA (multiple choice)",
    kind="both",
    licence="MIT (annotations)",
    source="GitHub: doc-doc/NExT-QA",
    files="dataset/nextqa/{train,val,test}.csv (or the parquet of Hugging Face: lmms-lab/NExTQA, MC)",
    videos="the VidOR videos, as VidOR has them (1101/4010069381.mp4) or flat",
    splits={
        "train": Split(("train.csv", "train-*.parquet"), rows=34_132),
        "val": Split(("val.csv", "val*-*.parquet"), rows=4_996),
        "test": Split(("test.csv", "MC/test-*.parquet"), rows=8_564),
    },
    convert=convert,
)
