"""QVHighlights, moment retrieval: json lines, a sentence and all its windows in a cut video of at most 150 seconds."""

from collections.abc import Iterator

from agentic_video.converters.base import Converter, Fields, Question, Split
from agentic_video.converters.moments import moments_question


def convert(row: Fields, split: str) -> Iterator[Question]:
    sentence, video = row.text("query"), row.text("vid")
    yield Question(
        id=row.label("qid"),
        videos=(video,),
        question=moments_question(sentence),
        answer="",
        extra={"query": sentence, "video_id": video, "duration": row.length_of("duration")},
        answer_type="intervals",
        windows=row.windows("relevant_windows"),
    )


CONVERTER = Converter(
    name="qvhighlights",
    title="QVHighlights (moment retrieval)",
    kind="both",
    licence="CC BY-NC-SA 4.0 (annotations)",
    source="GitHub: jayleicn/moment_detr (data)",
    files="highlight_val_release.jsonl, highlight_test_with_gt.jsonl, highlight_train_release.jsonl",
    videos="qvhilights_videos.tar.gz, unpacked: videos/<vid>.mp4",
    splits={
        "val": Split(("highlight_val_release.jsonl",), rows=1_550),
        "test": Split(("highlight_test_with_gt.jsonl",), rows=1_542),
        "train": Split(("highlight_train_release.jsonl",), rows=7_218),
    },
    convert=convert,
)
