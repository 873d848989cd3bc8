"""MMVU: expert-level questions by subject; multiple choice and open ended, the latter for a judge.

``extra_info.discipline`` is the subject's one of four, by which the paper reports.
"""

from urllib.parse import unquote

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

_SUBJECTS = {
    "Science": (
        "Astronomy, Biology, Chemistry, Electromagnetism, Geography, Materials Science, Mechanics, Modern Physics, "
        "Neurobiology, Thermodynamics"
    ),
    "Engineering": (
        "Biomedical Engineering, Civil Engineering, Computer Science, Electrical Engineering, "
        "Electronics and Communication, Mechanical Engineering"
    ),
    "Healthcare": "Basic Medicine, Clinical Medicine, Dentistry, Pharmacy, Preventive Medicine",
    "Humanities and Social Science": "Art, Economics, History, Law, Literature, Management",
}
DISCIPLINES = {
    subject.lower(): discipline for discipline, subjects in _SUBJECTS.items() for subject in subjects.split(", ")
}
"""The discipline of each of the 27 subjects, in lower case."""


def convert(row: Fields, split: str) -> Questions:
    kind = row.one_of("question_type", ("multiple-choice", "open-ended"))
    if split not in ("val", kind.replace("-", "_")):
        return
    video = _video(row)
    subject = _subject(row, video)
    options = row.options("choices") if kind == "multiple-choice" else ()
    yield Question(
        id=row.label("id"),
        videos=(video,),
        question=row.text("question"),
        options=options,
        answer=row.gold("answer", "letter", options) if options else row.label("answer"),
        extra={
            "category": subject,
            "discipline": DISCIPLINES.get(subject.lower()),
            "question_kind": kind,
        },
    )


def _video(row: Fields) -> str:
    """A video's path from its subject's folder on: names repeat between these."""
    name = row.text("video_path" if row.has("video_path") else "video")
    return "/".join(unquote(name.split("?")[0]).rstrip("/").split("/")[-2:])


def _subject(row: Fields, video: str) -> str:
    """The subject that the metadata names, else the video's folder."""
    if row.has("metadata") and (metadata := row.child("metadata")).has("subject"):
        return metadata.text("subject").replace("_", " ")
    return video.split("/")[0].replace("_", " ")


_FILES = ("validation.json", "validation-*.parquet", "validation*.jsonl")
CONVERTER = Converter(
    name="mmvu",
    title="MMVU",
    source="Hugging Face: yale-nlp/MMVU (or lmms-lab/MMVU)",
    files="validation.json (or validation-*.parquet); the test split's answers are not published",
    videos="videos/, with the subjects' folders (Art/0.mp4, ...)",
    splits={
        "val": Split(_FILES, rows=1_000),
        "multiple_choice": Split(_FILES, rows=625),
        "open_ended": Split(_FILES, rows=375),
    },
    convert=convert,
)
