"""Scores that a benchmark reports beside its accuracy, from what its converter keeps in ``extra_info``."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence

from agentic_video.converters.elv_halluc import hallucination_scores
from agentic_video.types.record import Record

Scores = dict[str, float]
"""Scores by name, as shares from 0 to 1 (differences from -1)."""


def suite_scores(records: Sequence[Record]) -> dict[str, Scores]:
    """The scores of each data source that has some; episodes that weren't graded count nowhere.

    Args:
        records: Of any data sources.
    """
    sources: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if "acc" in record.rewards:
            sources[record.qa.data_source].append(record)
    found = {}
    for source, members in sorted(sources.items()):
        suite = SUITES.get(source.removesuffix("_subtitles"))
        if suite is not None and (scores := suite(members)):
            found[source] = scores
    return found


def _mlvu(records: Sequence[Record]) -> Scores:
    """M-Avg: the mean over its tasks, whatever their size."""
    tasks: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if isinstance(task := record.qa.extra.get("category"), str):
            tasks[task].append(record.rewards["acc"])
    return {"M-Avg": statistics.fmean(map(statistics.fmean, tasks.values()))} if tasks else {}


def _elv_halluc(records: Sequence[Record]) -> Scores:
    """Pairs of captions that are both judged rightly, within the video and foreign, and the SAH ratio."""
    scores: Scores = {}
    aspects = sorted({str(record.qa.extra.get("category", "")) for record in records})
    for aspect in ("", *aspects):
        members = [record for record in records if aspect in ("", str(record.qa.extra.get("category", "")))]
        try:
            found = hallucination_scores(
                (str(one.qa.extra["triplet"]), str(one.qa.extra["caption_type"]), one.rewards["acc"] == 1.0)
                for one in members
            )
        except (KeyError, ValueError):  # rows without these fields, or no complete triplet
            continue
        name = f"{aspect}: " if aspect else ""
        scores[f"{name}in-video"] = found.in_accuracy
        scores[f"{name}out-of-video"] = found.out_accuracy
        if not aspect:
            scores["mean of both"] = found.accuracy
            scores["difference"] = found.out_accuracy - found.in_accuracy
            scores["SAH ratio"] = found.sah_ratio
    return scores


def _temporalbench(records: Sequence[Record]) -> Scores:
    """Multiple binary accuracy: a video counts when all questions about it are answered rightly."""
    videos: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.qa.answer_type == "multiple_choice" and (name := record.qa.extra.get("video_name")):
            videos[str(name)].append(record.rewards["acc"])
    right = [all(acc == 1.0 for acc in grades) for grades in videos.values()]
    return {"multiple binary accuracy": sum(right) / len(right)} if right else {}


SUITES: dict[str, Callable[[Sequence[Record]], Scores]] = {
    "mlvu": _mlvu,
    "elv_halluc": _elv_halluc,
    "temporalbench": _temporalbench,
}
"""By data source, as the converters name it."""
