"""TemporalBench: binary questions with the options inside ``question``, and short captions (open ended)."""

from agentic_video.converters import choices
from agentic_video.converters.base import Converter, Fields, Question, Questions, Split


def convert(row: Fields, split: str) -> Questions:
    video, identity = row.text("video_name"), row.label("idx")
    extra = {
        "category": row.label("category", ""),
        "dataset": row.label("dataset", ""),
        "video_name": video,  # multiple-binary accuracy: all questions about a video must be right
    }
    question, options = choices.clean(row.text("question")), tuple[str, ...]()
    if split == "short_caption":
        answer = row.text("GT")
    else:
        question, options = row.question_and_options("question", required=True)
        answer = row.gold("GT", "letter", options)
    yield Question(f"{split}-{identity}", (video,), question, answer, options, extra)


def _split(name: str) -> Split:
    return Split((f"temporalbench_{name}.json", f"test_{name}*.parquet", f"*{name}*.jsonl"))


CONVERTER = Converter(
    name="temporalbench",
    title="TemporalBench",
    source="Hugging Face: microsoft/TemporalBench",
    files="temporalbench_short_qa.json, temporalbench_long_qa.json, temporalbench_short_caption.json",
    videos="the zips, unpacked: short_video/, long_video/",
    splits={name: _split(name) for name in ("short_qa", "long_qa", "short_caption")},
    convert=convert,
)
