"""Scores that a benchmark reports beside its accuracy, from what its converter keeps in ``extra_info``."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentic_video.converters.elv_halluc import hallucination_scores
from agentic_video.graders.captions import f1, is_caption
from agentic_video.types.record import Record
from agentic_video.utils.standard_error import clustered_error, jackknife_errors

Scores = dict[str, float]
"""Scores by name, as shares from 0 to 1 (differences from -1)."""


ACCURACY = "accuracy"


@dataclass(frozen=True)
class Headline:
    """The one number of a run that belongs beside those of papers."""

    name: str  # `accuracy` over all questions, or the score that the benchmark's own report has in its place
    mean: float | None  # a share from 0 to 1; None where there is none
    error: float | None  # its standard error, clustered by video; None below two videos
    episodes: int  # how many count in it
    problem: str = ""  # why it doesn't belong beside a paper's number after all; empty where it does


def headline(records: Sequence[Record]) -> Headline:
    """The number of a run that belongs beside those of papers; episodes that weren't graded count nowhere."""
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
    """Whether an episode counts in its source's headline."""
    wanted = COUNTED.get(record.qa.data_source)
    return wanted is None or wanted(record)


def _by_words(records: Sequence[Record]) -> str:
    """Why grades don't belong beside a paper's, which call open answers right or wrong; empty where these do, too."""
    shares = [
        record
        for record in records
        if record.qa.answer_type == "open_ended"
        and not is_caption(record.qa)
        and record.rewards["acc"] not in (0.0, 1.0)
    ]
    return (
        "open-ended answers were graded by their words or as half right, not as right or wrong by a judge"
        if shares
        else ""
    )


def suite_scores(records: Sequence[Record]) -> dict[str, Scores]:
    """The scores of each data source that has some; episodes that weren't graded count nowhere."""
    return {source: scores for source, (scores, _) in _suites(records, errors=False).items()}


def suite_figures(records: Sequence[Record]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Scores by data source, each a ``mean`` with its standard ``error``, clustered by video (None below two)."""
    return {
        source: {name: {"mean": value, "error": errors[name]} for name, value in scores.items()}
        for source, (scores, errors) in _suites(records, errors=True).items()
    }


def _suites(records: Sequence[Record], *, errors: bool) -> dict[str, tuple[Scores, dict[str, float | None]]]:
    sources: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if "acc" in record.rewards:
            sources[record.qa.data_source].append(record)
    found = {}
    for source, members in sorted(sources.items()):
        suite = SUITES.get(source.removesuffix("_subtitles"))
        if suite is not None and (scores := suite(members)):
            moved = jackknife_errors(suite, members, lambda record: record.qa.video) if errors else {}
            found[source] = scores, moved
    return found


def _means(records: Sequence[Record], *fields: str, key: str = "acc") -> Scores:
    """Mean of a reward (the accuracy) by the value of a field, or by the values of several, in their order of name."""
    groups: dict[str, list[float]] = defaultdict(list)
    for record in records:
        values = [record.qa.extra.get(name) for name in fields]
        if all(isinstance(value, str) and value for value in values):
            groups[", ".join(map(str, values))].append(record.rewards[key])
    return {name: statistics.fmean(groups[name]) for name in sorted(groups)}


def _mlvu(records: Sequence[Record]) -> Scores:
    """M-Avg: the mean over its tasks of multiple choice, whatever their size."""
    return _mean_over("M-Avg", [record for record in records if _is_choice(record)])


def _is_choice(record: Record) -> bool:
    """MLVU's tasks with open answers have a score of their own, G-Avg, by a judge of its authors'."""
    return record.qa.answer_type == "multiple_choice"


def _mean_over(name: str, records: Sequence[Record], key: str = "acc") -> Scores:
    """The mean over the categories."""
    groups = _means(records, "category", key=key)
    return {name: statistics.fmean(groups.values())} if groups else {}


def _video_mmlu(records: Sequence[Record]) -> Scores:
    """The mean over the three disciplines (quiz), whatever their size; VDCscore (captions)."""
    return {**_mean_over("mean over disciplines", [record for record in records if _is_quiz(record)]), **_vdc(records)}


def _is_quiz(record: Record) -> bool:
    return not is_caption(record.qa)


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


def _videomme(records: Sequence[Record]) -> Scores:
    """By length, and by domain."""
    return {**_means(records, "length"), **_means(records, "domain")}


def _mmvu(records: Sequence[Record]) -> Scores:
    """Multiple choice and open ended apart, and the four disciplines."""
    return {**_means(records, "question_kind"), **_means(records, "discipline")}


def _videoeval_pro(records: Sequence[Record]) -> Scores:
    """Local and holistic questions, perception and reasoning: its four types are the categories of the report."""
    scores = {}
    for half in ("Local", "Holistic", "Perception", "Reasoning"):
        grades = [record.rewards["acc"] for record in records if half in str(record.qa.extra.get("category")).split()]
        if grades:
            scores[half] = statistics.fmean(grades)
    return scores


def _longtimescope(records: Sequence[Record]) -> Scores:
    """Each type of question at each length."""
    return _means(records, "category", "duration_name")


def _minerva(records: Sequence[Record]) -> Scores:
    """By domain: the skills are the categories of the report."""
    return _means(records, "domain")


def _dream1k(records: Sequence[Record]) -> Scores:
    """Precision and recall, the mean over the five sources of videos, whatever their size, and the F1 of these means
    (the benchmark's own aggregation)."""
    scored = [record for record in records if "caption_precision" in record.rewards]
    scores = {
        **_mean_over("precision", scored, "caption_precision"),
        **_mean_over("recall", scored, "caption_recall"),
    }
    return {**scores, "F1": f1(scores["precision"], scores["recall"])} if scores else {}


def _vdc(records: Sequence[Record]) -> Scores:
    """VDCscore: the mean of the judge's 0 to 5, as a share of 5."""
    values = [record.rewards["caption_score"] for record in records if "caption_score" in record.rewards]
    return {"score of 5": statistics.fmean(values) / 5} if values else {}


def _herbench(records: Sequence[Record]) -> Scores:
    """The mean over its tasks, whatever their size."""
    return _mean_over("mean over tasks", records)


SUITES: dict[str, Callable[[Sequence[Record]], Scores]] = {
    "mlvu": _mlvu,
    "elv_halluc": _elv_halluc,
    "temporalbench": _temporalbench,
    "videomme": _videomme,
    "mmvu": _mmvu,
    "videoeval_pro": _videoeval_pro,
    "longtimescope": _longtimescope,
    "minerva": _minerva,
    "herbench": _herbench,
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
"""The score that a benchmark's own report has in place of the accuracy over all questions, by data source."""

COUNTED: dict[str, Callable[[Record], bool]] = {"mlvu": _is_choice, "video_mmlu": _is_quiz}
"""Which episodes count in it, where not all do."""

JUDGED = frozenset({"mmvu", "video_mmlu", "videoeval_pro", "videosiah_eval"})
"""Data sources whose open-ended answers a judge calls right or wrong, whatever a system's reward pays for half an
answer: their published accuracies are counted so."""
