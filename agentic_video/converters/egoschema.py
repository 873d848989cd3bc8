"""EgoSchema: a json array with "option 0" .. "option 4"; 500 of its 5,031 answers are public, in a file of their own.

The rows of the full set have no answers: an evaluation plays them and writes what is to be submitted.
"""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

SECONDS = 180.0
"""Every video is a clip of three minutes."""
_OPTIONS = tuple(f"option {number}" for number in range(5))


def convert(row: Fields, split: str) -> Questions:
    if row.has("video_idx"):  # Hugging Face's rows
        video, options = row.label("video_idx"), row.options("option")
    else:
        video, options = row.label("q_uid"), tuple(row.label(name) for name in _OPTIONS)
    answer = ""
    if split == "subset":
        if video not in row.extra:
            return  # not one of the 500
        answer = Fields(row.extra, "subset_answers.json").gold(video, "index", options)
    elif split == "subset_hub":
        answer = row.gold("answer", "index", options)
    yield Question(
        id=video,
        videos=(video,),
        question=row.text("question"),
        options=options,
        answer=answer,
        extra={"duration": SECONDS, "q_uid": video, "answer_hidden": split == "full" or None},
    )


CONVERTER = Converter(
    name="egoschema",
    title="EgoSchema",
    licence="see the source's page; the videos: Ego4D's",
    source="GitHub: egoschema/EgoSchema, or Hugging Face: lmms-lab/egoschema",
    files="questions.json, with subset_answers.json for the split `subset`; of Hugging Face Subset/ (`subset_hub`) or "
    "GENERATION/ (`full`) with test-*.parquet",
    videos="the clips as <q_uid>.mp4 (videos_chunked_*.zip of Hugging Face, unpacked)",
    splits={
        "subset": Split(("questions.json",), rows=500, extra_file=("subset_answers.json",)),
        "subset_hub": Split(("Subset/test-*.parquet",), rows=500),
        "full": Split(("questions.json", "GENERATION/test-*.parquet"), rows=5_031),
    },
    convert=convert,
)
