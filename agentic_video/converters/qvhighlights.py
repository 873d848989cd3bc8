"""QVHighlights: json lines, a sentence, all its windows in a cut video of at most 150 seconds, and how good their clips
are."""

from agentic_video.converters.base import BadPart, Converter, Fields, Question, Questions, Split
from agentic_video.converters.moments import moments_question
from agentic_video.grounding.highlights import read_ratings

RATINGS = ("relevant_clip_ids", "saliency_scores")


def convert(row: Fields, split: str) -> Questions:
    sentence, video, duration = row.text("query"), row.text("vid"), row.length_of("duration")
    ratings = {name: row.raw[name] for name in RATINGS if row.has(name)}
    if ratings and read_ratings(duration, *map(ratings.get, RATINGS)) is None:
        yield BadPart(f"{row.error(RATINGS[1], 'must hold three ratings from 0 to 4 for each clip')}; left out")
        ratings = {}
    yield Question(
        id=row.label("qid"),
        videos=(video,),
        question=moments_question(sentence),
        answer="",
        extra={"query": sentence, "video_id": video, "duration": duration, **ratings},
        answer_type="intervals",
        windows=row.windows("relevant_windows"),
    )


CONVERTER = Converter(
    name="qvhighlights",
    title="QVHighlights",
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
