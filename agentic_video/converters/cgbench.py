"""CG-Bench: a json array; the gold is published as a letter and as a text, which must agree."""

from agentic_video.converters import choices
from agentic_video.converters.base import BadPart, Converter, Fields, Question, Questions, Split
from agentic_video.types.row import LETTERS, Interval, read_windows


def convert(row: Fields, split: str) -> Questions:
    options, video = row.options("choices"), row.label("video_uid")
    letter = row.gold("right_answer", "letter", options)
    # Two options may have the same text: the letter decides, the text must only be that of its option.
    if row.has("answer") and not choices.same(row.label("answer"), options[LETTERS.index(letter)]):
        raise row.error("answer", f"is not the text of option {letter}, which right_answer names")
    clues = _intervals(row)
    windows: tuple[Interval, ...] = ()
    try:
        windows = read_windows(clues)
    except ValueError as error:
        yield BadPart(f"{row.error('clue_intervals', str(error))}; left out of the windows")
    yield Question(
        id=row.label("qid"),
        videos=(video,),
        question=row.text("question"),
        options=options,
        answer=letter,
        extra={
            "category": row.label("domain"),
            "video_uid": video,
            "duration": row.duration(),
            "clue_intervals": clues,
            **row.kept("sub_category"),
        },
        subtitles=tuple(f"{folder}{video}.srt" for folder in ("cg_subtitles/", "subtitles/", "")),
        windows=windows,
    )


def _intervals(row: Fields) -> list[list[float]]:
    """Where the clues are, in seconds."""
    intervals = row.raw.get("clue_intervals") or []
    try:
        return [[float(start), float(end)] for start, end in intervals]
    except (TypeError, ValueError):
        raise row.error("clue_intervals", "must be a list of [start, end] in seconds") from None


CONVERTER = Converter(
    name="cgbench",
    title="CG-Bench",
    kind="both",
    licence="gated: accept the terms on its page",
    source="Hugging Face: CG-Bench/CG-Bench",
    files="cgbench.json, cgbench_mini.json; cg_subtitles/ for --subtitles",
    videos="cg_videos_720p/",
    splits={
        "full": Split(("cgbench.json",), rows=12_129),
        "mini": Split(("cgbench_mini.json",), rows=3_000),
    },
    convert=convert,
    subtitles=True,
)
