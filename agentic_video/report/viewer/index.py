"""Content of the page's list: all rows in columns, problems, and the overview."""

from typing import Any

from agentic_video.report.viewer.episodes import Episodes, Grouping
from agentic_video.report.viewer.overview import lengths_of, names_of, overview_of
from agentic_video.report.viewer.sources import missing_videos

_SHOWN_PROBLEMS = 200
_NAMED = ("set_name", "system", "end", "data_source", "refusal")
_PLAIN = (
    "run",
    "step",
    "question",
    "group",
    "rollout",
    "answer",
    "acc",
    "calls",
    "refused",
    "turns",
    "frames",
    "tokens",
)
_ROUNDED = ("reward", "advantage")


def index_of(
    episodes: Episodes, grouping: Grouping, title: str, have: int = 0, have_questions: int = 0
) -> dict[str, Any]:
    """Content of the page before an episode is opened: the list as columns, with names counted once.

    The first ``have`` episodes and ``have_questions`` questions are left out: the page has them.
    """
    total, missing = missing_videos(episodes.questions)
    lengths = lengths_of(episodes)
    rows = episodes.rows
    names: dict[str, list[str]] = {"run": names_of(episodes.runs)}
    columns: dict[str, list[Any]] = {}
    for column in _NAMED:
        numbers: dict[str, int] = {}
        values = [numbers.setdefault(getattr(row, column) or "", len(numbers)) for row in rows]
        columns[column], names[column] = values[have:], list(numbers)
    columns.update({column: [getattr(row, column) for row in rows[have:]] for column in _PLAIN})
    for column in _ROUNDED:
        columns[column] = [_rounded(getattr(row, column)) for row in rows[have:]]
    return {
        "title": title,
        "columns": columns,
        "names": names,
        "questions": [
            [question.id, question.text, question.same, round(length, 3)]
            for question, length in list(zip(episodes.questions, lengths, strict=True))[have_questions:]
        ],
        "gone": sorted(episodes.gone),
        "group_size": grouping.size,
        "by_std": grouping.by_std,
        "videos": {"total": total, "missing": len(missing), "paths": missing[:_SHOWN_PROBLEMS]},
        "problems": {"total": len(episodes.problems), "messages": episodes.problems[:_SHOWN_PROBLEMS]},
        "overview": overview_of(episodes, lengths),
    }


def news_of(episodes: Episodes, grouping: Grouping, title: str, have: int, have_questions: int) -> dict[str, Any]:
    """Update of a page that has the first episodes: as :func:`index_of`, and ``advantages`` that new rollouts of a
    group have changed, as [number of the episode, advantage]."""
    grown = {row.group for row in episodes.rows[have:]}
    changed = [
        [number, _rounded(row.advantage)] for number, row in enumerate(episodes.rows[:have]) if row.group in grown
    ]
    return {**index_of(episodes, grouping, title, have, have_questions), "advantages": changed}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
