"""Video-Holmes: a json array; field names have capitals and spaces, options are an object with the letters A to F."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split


def convert(row: Fields, split: str) -> Questions:
    options, video, identity = row.options("Options"), row.label("video ID"), row.label("Question ID")
    yield Question(
        id=identity if identity.startswith(video) else f"{video}-{identity}",
        videos=(video,),
        question=row.text("Question"),
        options=options,
        answer=row.gold("Answer", "letter", options),
        extra={
            "category": row.label("Question Type"),
            "question_id": identity,
            **row.kept("video ID", "Explanation"),
        },
    )


CONVERTER = Converter(
    name="video_holmes",
    title="Video-Holmes",
    kind="both",
    source="Hugging Face: TencentARC/Video-Holmes",
    files="test_Video-Holmes.json, train_Video-Holmes.json",
    videos="videos.zip, unpacked (videos_cropped/); the training videos for --split train",
    splits={
        "test": Split(("test_Video-Holmes.json",), rows=1_837),
        "train": Split(("train_Video-Holmes.json",)),
    },
    convert=convert,
)
