"""MINERVA: a json array; each question takes several skills, and comes with a reasoning written by hand."""

import re

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

_OPTIONS = tuple(f"answer_choice_{number}" for number in range(5))
_ADDRESS = re.compile(r"(?:[?&]v=|youtu\.be/|/shorts/)([\w-]{11})")


def convert(row: Fields, split: str) -> Questions:
    options = tuple(row.label(name) for name in _OPTIONS)
    name = row.text("video_id")
    address = _ADDRESS.search(name)
    skills = row.text("question_type" if row.has("question_type") else "question type")
    yield Question(
        id=row.label("key"),
        videos=(address[1] if address else name,),
        question=row.text("question"),
        options=options,
        answer=row.gold("answer_id", "index", options),
        extra={
            # a question counts for each of its skills
            "categories": [skill.strip() for skill in skills.split(",") if skill.strip()],
            "domain": row.raw.get("split"),
            "sub_category": row.raw.get("category"),
            **row.kept("reasoning"),
        },
    )


CONVERTER = Converter(
    name="minerva",
    title="MINERVA",
    source="GitHub: google-deepmind/neptune (its data links), Hugging Face: lmms-lab-eval/minerva",
    files="minerva.json",
    videos="the YouTube videos as <video id>.mp4 (or .webm, .mkv)",
    splits={"test": Split(("minerva.json", "minerva*.json"), rows=1_515)},
    convert=convert,
)
