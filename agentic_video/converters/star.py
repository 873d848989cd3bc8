"""STAR: a json array; the answer is a text, the options have numbers, the question is about a stretch of its video."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split


def convert(row: Fields, split: str) -> Questions:
    choices: dict[float, str] = {}
    for choice in row.objects("choices"):
        number = choice.number_of("choice_id")
        if number in choices:
            raise choice.error("choice_id", f"{number:g} is there twice")
        choices[number] = choice.text("choice")
    if len(choices) < 2:
        raise row.error("choices", f"must hold 2 options or more, got {len(choices)}")
    options = tuple(choices[number] for number in sorted(choices))
    start, end = row.number_of("start"), row.number_of("end")
    if not 0 <= start < end:
        raise row.error("end", f"must come after start {start:g}, got {end:g}")
    identity, video = row.text("question_id"), row.text("video_id")
    yield Question(
        id=identity,
        videos=(video,),
        question=row.text("question"),
        options=options,
        answer=row.gold("answer", "text", options),
        extra={"category": identity.split("_")[0], "video_id": video, "start": start, "end": end},
    )


CONVERTER = Converter(
    name="star",
    title="STAR",
    kind="both",
    licence="Apache-2.0 (annotations)",
    source="GitHub: csbobby/STAR_Benchmark",
    files="STAR_train.json, STAR_val.json (the test split's answers are not published)",
    videos="Charades_v1_480/ (the whole videos; a question is about start .. end, kept in extra_info)",
    splits={
        "train": Split(("STAR_train.json",), rows=45_731),
        "val": Split(("STAR_val.json",), rows=7_098),
    },
    convert=convert,
)
