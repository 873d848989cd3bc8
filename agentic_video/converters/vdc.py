"""VDC (AuroraCap): a reference caption and questions that grade a caption. Open ended: needs a judge."""

import json
from collections.abc import Iterator

from agentic_video.converters.base import Converter, Fields, Question, Split
from agentic_video.types.row import RowError

REQUESTS = {
    "detailed": "Describe this video in detail: what happens, who or what is in it, where, and how it is filmed.",
    "short": "Describe this video in one sentence.",
    "background": "Describe the background of this video: the place, its objects, the weather, the time of day.",
    "main_object": "Describe the main subject of this video: what it looks like, what it does, how it moves.",
    "camera": "Describe the camera of this video: shots, angles, movements, changes between them.",
}


def convert(row: Fields, split: str) -> Iterator[Question]:
    video = row.text("video_name")
    pairs = []
    for part in row.children("qa_list"):
        if isinstance(part, RowError):
            raise part
        pairs.append({"question": part.text("question"), "answer": part.label("answer")})
    if not pairs:
        raise row.error("qa_list", "is empty: the caption can't be graded")
    yield Question(
        id=f"{split}-{video}",
        videos=(video,),
        question=REQUESTS[split],
        answer=row.text("caption"),
        extra={"category": split, "qa_list": json.dumps(pairs, ensure_ascii=False)},
    )


CONVERTER = Converter(
    name="vdc",
    title="VDC",
    kind="eval",
    licence="see the source's page",
    source="Hugging Face: wchai/Video-Detailed-Caption (wchai/lmms_VDC_test for its parquet)",
    files="one folder or file a caption kind, named after it: detailed*, short*, background*, main_object*, camera*",
    videos="Test_Videos/",
    splits={
        name: Split((f"*{name}*/*.parquet", f"*{name}*.parquet", f"*{name}*.jsonl", f"*{name}*.json"), rows=1_027)
        for name in REQUESTS
    },
    convert=convert,
)
