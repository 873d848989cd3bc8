"""LLaVA-Video-178K: json arrays of conversations about a video, several questions each.

The ids repeat by design (an item for every batch of questions), so file, position and turn are the rows' ids.
"""

from agentic_video.converters import choices
from agentic_video.converters.base import Converter, Fields, Question, Questions, Split
from agentic_video.types.row import RowError


def convert(row: Fields, split: str) -> Questions:
    video = row.text("video")
    turns = list(row.children("conversations"))
    if not turns or len(turns) % 2:
        raise row.error("conversations", f"must hold questions and answers by turns, got {len(turns)} turns")
    for number in range(0, len(turns), 2):
        asked, said = turns[number], turns[number + 1]
        try:
            if isinstance(asked, RowError):
                raise asked
            if isinstance(said, RowError):
                raise said
            if (asked.text("from"), said.text("from")) != ("human", "gpt"):
                raise asked.error("from", "must be human, and gpt in the turn after it")
            yield _question(row, asked, said, f"{row.stem}-{row.number}-{number // 2}", video, split)
        except RowError as error:
            yield error


def _question(row: Fields, asked: Fields, said: Fields, identity: str, video: str, split: str) -> Question:
    options: tuple[str, ...] = ()
    if split == "multi_choice":
        question, options = asked.question_and_options("value", required=True)
        answer = said.gold("value", "letter", options)
    else:
        question, answer = choices.clean(asked.text("value")), said.text("value")
    if not question:
        raise asked.error("value", "holds no question")
    extra = {"category": row.label("data_source", ""), "published_id": row.label("id")}
    return Question(identity, (video,), question, answer, options, extra)


CONVERTER = Converter(
    name="llava_video",
    title="LLaVA-Video-178K",
    kind="train",
    licence="Apache-2.0, academic use (see its page)",
    source="Hugging Face: lmms-lab/LLaVA-Video-178K",
    files="the *_qa_processed.json and *_cap_processed.json of the folders that you want",
    videos="the folders' archives, unpacked (academic_source/, liwei_youtube_videos/, ...)",
    splits={
        "multi_choice": Split(("*_mc_*qa_processed.json",)),
        "open_ended": Split(("*_oe_*qa_processed.json",)),
        "caption": Split(("*cap_processed.json",)),
    },
    convert=convert,
)
