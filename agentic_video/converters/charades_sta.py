"""Charades-STA: a text file of lines "video start end##sentence", times in seconds."""

import re

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split
from agentic_video.converters.moments import moment_question

_LINE = re.compile(r"(?P<video>\S+) (?P<start>\S+) (?P<end>\S+)\s*##(?P<sentence>.*\S.*)")


def convert(row: Fields, split: str) -> Questions:
    found = _LINE.fullmatch(row.text("line"))
    if not found:
        raise row.error("line", f'must be "video start end##sentence", got {row.text("line")[:60]!r}')
    parts = Fields(found.groupdict(), row.where)
    yield Question(
        id=f"{split}-{row.number}",  # not published
        videos=(parts.text("video"),),
        question=moment_question(parts.text("sentence")),
        answer="",
        extra={"query": parts.text("sentence"), "video_id": parts.text("video")},
        answer_type="interval",
        windows=Fields({"line": [parts.number_of("start"), parts.number_of("end")]}, row.where).windows("line"),
    )


CONVERTER = Converter(
    name="charades_sta",
    title="Charades-STA",
    kind="both",
    licence="see the source's page; the videos: Charades' own licence",
    source="GitHub: jiyanggao/TALL (its data links)",
    files="charades_sta_test.txt, charades_sta_train.txt",
    videos="Charades_v1_480/",
    splits={
        "test": Split(("charades_sta_test.txt",), rows=3_720),
        "train": Split(("charades_sta_train.txt",), rows=12_408),
    },
    convert=convert,
)
