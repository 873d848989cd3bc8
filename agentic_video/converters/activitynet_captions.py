"""ActivityNet Captions as temporal grounding: an object by video, its sentences each with a window in seconds."""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split
from agentic_video.converters.moments import moment_question
from agentic_video.types.row import RowError


def convert(row: Fields, split: str) -> Questions:
    duration, windows, sentences = row.length_of("duration"), row.value("timestamps"), row.value("sentences")
    if not isinstance(windows, list) or not isinstance(sentences, list) or len(windows) != len(sentences):
        yield row.error("timestamps", "must be a list with a [start, end] for each of the 'sentences'")
        return
    for number in range(len(sentences)):
        try:
            yield _question(row, split, number, duration)
        except RowError as error:
            yield error


def _question(row: Fields, split: str, number: int, duration: float) -> Question:
    names = {
        f"timestamps[{number}]": row.raw["timestamps"][number],
        f"sentences[{number}]": row.raw["sentences"][number],
    }
    part = Fields(names, row.where)
    sentence = part.text(f"sentences[{number}]")
    return Question(
        id=f"{split}-{row.key}-{number}",
        videos=(row.key,),
        question=moment_question(sentence),
        answer="",
        extra={"query": sentence, "video_id": row.key, "duration": duration},
        answer_type="interval",
        windows=part.windows(f"timestamps[{number}]"),
    )


CONVERTER = Converter(
    name="activitynet_captions",
    title="ActivityNet Captions (temporal grounding)",
    kind="both",
    source="cs.stanford.edu/people/ranjaykrishna/densevid",
    files="captions.zip, unpacked: val_2.json (the usual test split), val_1.json, train.json",
    videos="the ActivityNet videos as <video id>.mp4 (v_uqiMw7tQ1Cc.mp4)",
    splits={
        "val_2": Split(("val_2.json",), rows=17_031, keyed=True),
        "val_1": Split(("val_1.json",), rows=17_505, keyed=True),
        "train": Split(("train.json",), rows=37_421, keyed=True),
    },
    convert=convert,
)
