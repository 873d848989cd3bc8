"""Video-MME: parquet with the options as "A. text"; the splits are the video lengths."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

LENGTHS = ("short", "medium", "long")
_FILES = ("videomme/test-*.parquet", "test-*.parquet", "*.parquet", "*.jsonl")


def convert(row: Fields, split: str) -> Questions:
    length = row.one_of("duration", LENGTHS)
    if split not in ("all", length):
        return
    options, video = row.options("options"), row.text("videoID")
    yield Question(
        id=row.label("question_id"),
        videos=(video,),
        question=row.text("question"),
        options=options,
        answer=row.gold("answer", "letter", options),
        extra={
            "category": row.label("task_type"),
            "length": length,
            **row.kept("video_id", "videoID", "domain", "sub_category"),
        },
        subtitles=(f"subtitle/{video}.srt", f"{video}.srt"),
    )


CONVERTER = Converter(
    name="videomme",
    title="Video-MME",
    licence="academic research only (see its page)",
    source="Hugging Face: lmms-lab/Video-MME",
    files="videomme/test-00000-of-00001.parquet; subtitle.zip, unpacked, for --subtitles",
    videos="videos_chunked_*.zip, unpacked (data/)",
    splits={
        "all": Split(_FILES, rows=2_700),
        "short": Split(_FILES, rows=900),
        "medium": Split(_FILES, rows=900),
        "long": Split(_FILES, rows=900),
    },
    convert=convert,
    subtitles=True,
)
