"""Scores that a benchmark reports in addition to its accuracy, from what its converter keeps in ``extra_info``."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agentic_video.converters.elv_halluc import hallucination_scores
from agentic_video.graders.captions import f1, is_caption
from agentic_video.types.record import Record
from agentic_video.utils.standard_error import clustered_error, jackknife_errors

Scores = dict[str, float]
"""Scores by name, as shares from 0 to 1 (differences from -1)."""
Suite = Callable[[Sequence[Record]], Scores]

ACCURACY = "accuracy"


@dataclass(frozen=True)
class Headline:
    """The number of a run that is comparable with those of papers."""

    name: str  # `accuracy` over all questions, or the score that the benchmark's own report has instead
    mean: float | None  # a share from 0 to 1; None where there is none
    error: float | None  # its standard error, clustered by video; None below two videos
    episodes: int  # how many count in it
    problem: str = ""  # why it isn't comparable with a paper's number after all; empty where it is


def headline(records: Sequence[Record]) -> Headline:
    """The number of a run to compare with papers; episodes that weren't graded count nowhere."""
    graded = [record for record in records if "acc" in record.rewards]
    sources = {record.qa.data_source.removesuffix("_subtitles") for record in graded}
    name = HEADLINES.get(sources.pop(), ACCURACY) if len(sources) == 1 else ACCURACY
    if name == ACCURACY:
        values = [record.rewards["acc"] for record in graded]
        mean = statistics.fmean(values) if values else None
        error = clustered_error(values, [record.qa.video for record in graded])
        return Headline(name, mean, error, len(graded), _by_words(graded))
    figures = next(iter(suite_figures(graded).values()), {})
    if name not in figures:
        return Headline(name, None, None, 0, f"this run has no {name}")
    members = [record for record in graded if _counts(record)]
    return Headline(name, figures[name]["mean"], figures[name]["error"], len(members), _by_words(members))


def _counts(record: Record) -> bool:
    """Return True if an episode counts in its source's headline."""
    counted = COUNTED.get(record.qa.data_source)
    return counted is None or counted(record)


def _by_words(records: Sequence[Record]) -> str:
    """Why grades aren't comparable with a paper's, which call open answers right or wrong; empty where they are."""
    for record in records:
        open_ended = record.qa.answer_type == "open_ended" and not is_caption(record.qa)
        if open_ended and record.rewards["acc"] not in (0.0, 1.0):
            return "open-ended answers were graded by their words or as half right, not as right or wrong by a judge"
    return ""


def suite_figures(records: Sequence[Record]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Scores by data source, each a ``mean`` with its standard ``error``, clustered by video (None below two).

    Episodes that weren't graded count nowhere.
    """
    figures = {}
    for source, suite, members in _suites(records):
        errors = jackknife_errors(suite, members, lambda record: record.qa.video)
        figures[source] = {name: {"mean": value, "error": errors[name]} for name, value in suite(members).items()}
    return figures


def _suites(records: Sequence[Record]) -> Iterator[tuple[str, Suite, list[Record]]]:
    """Data sources that have scores, with their suite and their graded records."""
    sources: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if "acc" in record.rewards:
            sources[record.qa.data_source].append(record)
    for source, members in sorted(sources.items()):
        suite = SUITES.get(source.removesuffix("_subtitles"))
        if suite is not None and suite(members):
            yield source, suite, members


def _means(records: Sequence[Record], *fields: str, key: str = "acc") -> Scores:
    """Mean of a reward (the accuracy) by the value of a field, or by the values of several, in their order of name."""
    groups: dict[str, list[float]] = defaultdict(list)
    for record in records:
        values = [record.qa.extra.get(name) for name in fields]
        if all(isinstance(value, str) and value for value in values):
            groups[", ".join(map(str, values))].append(record.rewards[key])
    return {name: statistics.fmean(groups[name]) for name in sorted(groups)}


def _by(*groupings: Sequence[str]) -> Suite:
    """A suite of the accuracies by each grouping, which is of one field or more."""
    return lambda records: {name: mean for fields in groupings for name, mean in _means(records, *fields).items()}


def _mean_over(name: str, records: Sequence[Record], key: str = "acc") -> Scores:
    """The mean over the categories, whatever their size."""
    groups = _means(records, "category", key=key)
    return {name: statistics.fmean(groups.values())} if groups else {}


def _is_choice(record: Record) -> bool:
    """MLVU's tasks with open answers have a score of their own, G-Avg, by a judge of its authors'."""
    return record.qa.answer_type == "multiple_choice"


def _is_quiz(record: Record) -> bool:
    return not is_caption(record.qa)


def _video_mmlu(records: Sequence[Record]) -> Scores:
    """The mean over the three disciplines (quiz); VDCscore (captions)."""
    return {**_mean_over("mean over disciplines", list(filter(_is_quiz, records))), **_vdc(records)}


def _elv_halluc(records: Sequence[Record]) -> Scores:
    """Pairs of captions that are both judged rightly, within the video and foreign, and the SAH ratio."""
    scores: Scores = {}
    aspects: dict[str, list[Record]] = {"": list(records)}
    for record in sorted(records, key=lambda record: str(record.qa.extra.get("category", ""))):
        if aspect := str(record.qa.extra.get("category", "")):
            aspects.setdefault(f"{aspect}: ", []).append(record)
    for aspect, members in aspects.items():
        try:
            found = hallucination_scores(
                (str(record.qa.extra["triplet"]), str(record.qa.extra["caption_type"]), record.rewards["acc"] == 1.0)
                for record in members
            )
        except (KeyError, ValueError):  # rows without these fields, or no complete triplet
            continue
        scores[f"{aspect}in-video"] = found.in_accuracy
        scores[f"{aspect}out-of-video"] = found.out_accuracy
        if not aspect:
            scores["mean of both"] = found.accuracy
            scores["difference"] = found.out_accuracy - found.in_accuracy
            scores["SAH ratio"] = found.sah_ratio
    return scores


def _temporalbench(records: Sequence[Record]) -> Scores:
    """Multiple binary accuracy: a video counts when all questions about it are answered rightly."""
    videos: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if _is_choice(record) and (name := record.qa.extra.get("video_name")):
            videos[str(name)].append(record.rewards["acc"])
    right = [all(acc == 1.0 for acc in grades) for grades in videos.values()]
    return {"multiple binary accuracy": statistics.fmean(right)} if right else {}


def _videoeval_pro(records: Sequence[Record]) -> Scores:
    """Local and holistic questions, perception and reasoning: its four types are the categories of the report."""
    halves: dict[str, list[float]] = {half: [] for half in ("Local", "Holistic", "Perception", "Reasoning")}
    for record in records:
        for half in halves.keys() & set(str(record.qa.extra.get("category")).split()):
            halves[half].append(record.rewards["acc"])
    return {half: statistics.fmean(grades) for half, grades in halves.items() if grades}


def _dream1k(records: Sequence[Record]) -> Scores:
    """Precision and recall, the mean over the five sources of videos, and the F1 of these means (the benchmark's own
    aggregation)."""
    scored = [record for record in records if "caption_precision" in record.rewards]
    means = [_mean_over(name, scored, f"caption_{name}") for name in ("precision", "recall")]
    scores = {name: mean for found in means for name, mean in found.items()}
    return {**scores, "F1": f1(scores["precision"], scores["recall"])} if scores else {}


def _vdc(records: Sequence[Record]) -> Scores:
    """VDCscore: the mean of the judge's 0 to 5, as a share of 5."""
    values = [record.rewards["caption_score"] for record in records if "caption_score" in record.rewards]
    return {"score of 5": statistics.fmean(values) / 5} if values else {}


SUITES: dict[str, Suite] = {
    "mlvu": lambda records: _mean_over("M-Avg", list(filter(_is_choice, records))),
    "elv_halluc": _elv_halluc,
    "temporalbench": _temporalbench,
    "videomme": _by(["length"], ["domain"]),
    "mmvu": _by(["question_kind"], ["discipline"]),
    "videoeval_pro": _videoeval_pro,
    "longtimescope": _by(["category", "duration_name"]),
    "minerva": _by(["domain"]),  # the skills are the categories of the report
    "herbench": lambda records: _mean_over("mean over tasks", records),
    "video_mmlu": _video_mmlu,
    "dream1k": _dream1k,
    "vdc": _vdc,
}
"""By data source, as the converters name it."""

HEADLINES = {
    "mlvu": "M-Avg",
    "video_mmlu": "mean over disciplines",
    "herbench": "mean over tasks",
    "elv_halluc": "mean of both",
    "dream1k": "precision",
}
"""The score that a benchmark's own report has instead of the accuracy over all questions, by data source."""

COUNTED: dict[str, Callable[[Record], bool]] = {"mlvu": _is_choice, "video_mmlu": _is_quiz}
"""Selection of the episodes that count in it, where not all do."""

JUDGED = frozenset({"mmvu", "video_mmlu", "videoeval_pro", "videosiah_eval"})
"""Data sources whose open-ended answers a judge calls right or wrong, whatever a system's reward pays for half an
answer: their published accuracies are counted so."""
