"""What the page's list holds: all rows in columns, and what was left out."""

from typing import Any

from agentic_video.report.viewer.episodes import Episodes, Grouping
from agentic_video.report.viewer.sources import missing_videos

_SHOWN_PROBLEMS = 200


def index_of(episodes: Episodes, grouping: Grouping, title: str) -> dict[str, Any]:
    """What the page needs before an episode is opened: the list as columns, with names counted once."""
    total, missing = missing_videos(episodes.questions)
    names: dict[str, list[str]] = {}

    def named(column: str) -> list[int]:
        numbers: dict[str, int] = {}
        values = [numbers.setdefault(getattr(row, column), len(numbers)) for row in episodes.rows]
        names[column] = list(numbers)
        return values

    columns: dict[str, list[Any]] = {column: named(column) for column in ("set_name", "system", "end", "data_source")}
    plain = ("step", "question", "group", "rollout", "answer", "acc", "calls", "refused", "turns", "frames", "tokens")
    columns.update({column: [getattr(row, column) for row in episodes.rows] for column in plain})
    for column in ("reward", "advantage"):
        values = [getattr(row, column) for row in episodes.rows]
        columns[column] = [None if value is None else round(value, 6) for value in values]
    return {
        "title": title,
        "columns": columns,
        "names": names,
        "questions": [[question.id, question.text] for question in episodes.questions],
        "group_size": grouping.size,
        "by_std": grouping.by_std,
        "videos": {"total": total, "missing": len(missing), "paths": missing[:_SHOWN_PROBLEMS]},
        "problems": {"total": len(episodes.problems), "messages": episodes.problems[:_SHOWN_PROBLEMS]},
    }
