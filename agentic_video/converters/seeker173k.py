"""Seeker-173K's RL rows (Video-o3): answer and clues in ``solution``, the class of the reward in ``data_source``."""

from agentic_video.converters.base import BadPart, Converter, Fields, Question, Questions, Split
from agentic_video.converters.longvideo_reason import video_names
from agentic_video.types.row import Interval, RowError

GROUNDING = ("temporal_grounding", "test_temporal_grounding", "charades", "activitynet")
"""The classes whose answer is the segment of the one clue."""


def convert(row: Fields, split: str) -> Questions:
    solution, kind = row.child("solution"), row.label("data_source")
    # The files number their rows apart.
    identity, videos = f"{row.stem}-{row.label('doc_id')}", video_names(row.text("video"))
    # The authors' reader takes a grounding row's text from another field than a question's.
    asked = row.text("question" if row.has("question") or not row.has("problem") else "problem")
    extra = {
        "reward_class": kind,
        "duration": row.duration(),
    }
    windows: list[Interval] = []
    for clue in solution.children("clue") if solution.has("clue") else ():
        try:
            if isinstance(clue, RowError):
                raise clue
            (start, end), *more = clue.windows("timestamp")
            if more or start >= end:
                raise clue.error("timestamp", "must be [start, end] in seconds with start < end")
        except RowError as error:
            if kind in GROUNDING:
                raise
            yield BadPart(f"{error}; left out of the windows")
        else:
            windows.append((start, end))
    if kind in GROUNDING:
        if not windows:
            raise solution.error("clue", "must hold the segment that is the answer")
        yield Question(identity, videos, asked, "", extra=extra, answer_type="interval", windows=(windows[0],))
        return
    options = _options(row)
    answer = solution.gold("answer", "letter", options)
    yield Question(identity, videos, asked, answer, options, extra, windows=tuple(windows))


def _options(row: Fields) -> tuple[str, ...]:
    """Those of a list, of an object, or of one text with their letters: the authors' reader takes any of them."""
    if not isinstance(row.value("options"), str):
        return row.options("options")
    before, options = row.question_and_options("options")
    if before or not options:
        raise row.error("options", "must hold the options A, B, ... and nothing else")
    return options


CONVERTER = Converter(
    name="seeker173k",
    title="Seeker-173K's RL rows (Video-o3)",
    kind="train",
    source="Hugging Face: MCG-NJU/Seeker-173K",
    files="the RL rows as json, jsonl or parquet, alone in their folder (or the file itself as --source)",
    videos="the videos that the rows name (LLaVA-Video's, CG-Bench's, Charades', NExT-QA's, ...)",
    splits={"train": Split(("*.json", "*.jsonl", "*.parquet"))},
    convert=convert,
)
