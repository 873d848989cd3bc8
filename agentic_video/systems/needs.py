"""Whether the episodes of rows can be scored, asked before the first one is played."""

from collections.abc import Collection, Sequence

from agentic_video.systems.base import Grader, System
from agentic_video.types.row import RowError, VideoQA
from agentic_video.utils.errors import SetupError


def check_needs(where: str, rows: Sequence[VideoQA], system: System, missing: Collection[Grader]) -> None:
    """Make sure that the score of each row's episodes can be had: else all of them would fail, one after the other.

    A system whose ``score`` or ``grade`` isn't the one that its ``needs`` is about isn't asked.

    Args:
        where: Where the rows are from.
        missing: Whom nobody can ask.

    Raises:
        SetupError: Of some it can't; the message says of how many, and what to set.
    """
    if not _says_needs(system):
        return
    unnamed: dict[tuple[Grader, str], int] = {}
    faults: list[str] = []
    for qa in rows:
        try:
            for need in system.needs(qa).items():
                if need[0] in missing:
                    unnamed[need] = unnamed.get(need, 0) + 1
        except RowError as error:
            faults.append(str(error))
    if faults:
        raise SetupError(
            f"{where}: {len(faults)} of {len(rows)} rows can't be scored: mend them or leave them out; the first: "
            f"{faults[0]}"
        )
    for (grader, what), count in unnamed.items():
        raise SetupError(
            f"{where}: {count} of {len(rows)} rows {what}: set agentic_video.{grader}.base_url and "
            f"agentic_video.{grader}.model, or leave them out"
        )


def _says_needs(system: System) -> bool:
    """Whether ``needs`` is as far down the system's classes as what it is about."""
    lineage = type(system).__mro__
    needs, score, grade = (
        next(place for place, cls in enumerate(lineage) if name in vars(cls)) for name in ("needs", "score", "grade")
    )
    return needs <= min(score, grade)
