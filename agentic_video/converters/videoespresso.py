"""VideoEspresso: json arrays. The benchmark has options "(A): text" and the answer "(A)"; training rows have none."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split


def convert(row: Fields, split: str) -> Questions:
    extra = {"category": row.label("task", ""), **row.kept("evidence")}
    identity = f"{row.stem}-{row.number}"  # not published
    question, videos = row.text("question"), (row.text("video_path"),)
    if row.has("options"):
        options = row.options("options")
        yield Question(identity, videos, question, row.gold("correct_answer", "letter", options), options, extra)
    else:
        yield Question(identity, videos, question, row.text("answer"), extra=extra)


CONVERTER = Converter(
    name="videoespresso",
    title="VideoEspresso",
    kind="both",
    source="GitHub: hshjerry/VideoEspresso",
    files="the benchmark's bench_*.json (its format is published); videoespresso_train*.json is read as open-ended "
    "rows with question, answer, evidence, task and video_path",
    videos="the videos, in the folders that video_path names",
    splits={
        "train": Split(("*train*.json",)),
        "test": Split(("bench_*.json", "*test*.json")),
    },
    convert=convert,
)
