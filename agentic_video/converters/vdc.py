"""VDC (AuroraCap): a reference caption and questions that grade a caption. Open ended: needs a judge."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split, as_json, graded_by

REQUESTS = {
    "detailed": "Describe this video in detail: what happens, who or what is in it, where, and how it is filmed.",
    "short": "Describe this video in one sentence.",
    "background": "Describe the background of this video: the place, its objects, the weather, the time of day.",
    "main_object": "Describe the main subject of this video: what it looks like, what it does, how it moves.",
    "camera": "Describe the camera of this video: shots, angles, movements, changes between them.",
}


def convert(row: Fields, split: str) -> Questions:
    video = row.text("video_name")
    pairs, bad = graded_by(row, "qa_list")
    yield from bad
    yield Question(
        id=f"{split}-{video}",
        videos=(video,),
        question=REQUESTS[split],
        answer=row.text("caption"),
        extra={"category": split, "qa_list": as_json(pairs)},
    )


CONVERTER = Converter(
    name="vdc",
    title="VDC",
    source="Hugging Face: wchai/Video-Detailed-Caption (wchai/lmms_VDC_test for its parquet)",
    files="one folder or file a caption kind, named after it: detailed*, short*, background*, main_object*, camera*",
    videos="Test_Videos/",
    splits={
        name: Split((f"*{name}*/*.parquet", f"*{name}*.parquet", f"*{name}*.jsonl", f"*{name}*.json"), rows=1_027)
        for name in REQUESTS
    },
    convert=convert,
)
