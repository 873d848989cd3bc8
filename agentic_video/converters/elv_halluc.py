"""ELV-Halluc: captions in triplets (true, wrong by something of the same video, wrong by something foreign); scores.

The captions become yes-or-no questions. The file's order matters: each three rows are a triplet.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

TYPES = ("ground_truth", "in_video", "out_video")
REQUEST = "Is everything that the following caption says about the video right?"


def convert(row: Fields, split: str) -> Questions:
    kind, options = row.one_of("caption_type", TYPES), ("Yes", "No")
    answer = row.gold("ref_answer", "text", options)
    if (answer == "A") != (kind == "ground_truth"):
        raise row.error("ref_answer", f"must be {'Yes' if kind == 'ground_truth' else 'No'} for {kind}")
    asked = row.text("question") if row.has("question") else f"{REQUEST}\n{row.text('caption')}"
    named = next((name for name in ("video_path", "video", "video_id") if row.has(name)), "video_path")
    position = row.number  # a bad row keeps its place, so that the triplets after it don't shift
    yield Question(
        id=str(position),
        videos=(row.label(named),),
        question=asked,
        answer=answer,
        options=options,
        extra={
            "category": row.text("aspect"),
            "caption_type": kind,
            "triplet": str(position // len(TYPES)),
            **row.kept("part_nums"),
        },
    )


@dataclass(frozen=True)
class HallucinationScores:
    """Scores of ELV-Halluc, as fractions."""

    in_accuracy: float  # share of triplets whose true caption and in-video caption are both judged rightly
    out_accuracy: float  # the same with the out-of-video caption
    accuracy: float  # mean of the two
    sah_ratio: float  # see :func:`sah_ratio`
    triplets: int  # how many triplets were complete


def sah_ratio(in_accuracy: float, out_accuracy: float) -> float:
    """Share of in-video failures that come of joining what was seen wrongly (semantic aggregation hallucination).

    ``(out - in) / (1 - in)`` (ELV-Halluc; EVA section 6.4). Lower is better; it is negative where the foreign captions
    are the harder ones, and 0 where there is no in-video failure.
    """
    if not (0 <= in_accuracy <= 1 and 0 <= out_accuracy <= 1):
        raise ValueError(f"accuracies must be within 0 .. 1, got {in_accuracy} and {out_accuracy}")
    return 0.0 if in_accuracy == 1 else (out_accuracy - in_accuracy) / (1 - in_accuracy)


def hallucination_scores(answers: Iterable[tuple[str, str, bool]]) -> HallucinationScores:
    """The scores of answered questions.

    Args:
        answers: For each question its ``extra_info.triplet``, its ``extra_info.caption_type`` and whether it was
            answered rightly. Triplets of which a question is missing don't count.
    """
    triplets: dict[str, dict[str, bool]] = defaultdict(dict)
    for triplet, kind, right in answers:
        if kind in triplets[triplet]:
            raise ValueError(f"triplet {triplet} has two answers for {kind}")
        triplets[triplet][kind] = right
    complete = [given for given in triplets.values() if set(given) == set(TYPES)]
    if not complete:
        raise ValueError("no triplet has all of its three answers")
    inside = sum(given["ground_truth"] and given["in_video"] for given in complete) / len(complete)
    outside = sum(given["ground_truth"] and given["out_video"] for given in complete) / len(complete)
    return HallucinationScores(inside, outside, (inside + outside) / 2, sah_ratio(inside, outside), len(complete))


CONVERTER = Converter(
    name="elv_halluc",
    title="ELV-Halluc",
    licence="CC BY-NC-SA 4.0",
    source="Hugging Face: HLSv/ELV-Halluc",
    files="ELV_Halluc.jsonl",
    videos="its videos",
    splits={"test": Split(("ELV_Halluc.jsonl", "*.jsonl"), rows=4_800)},
    convert=convert,
)
