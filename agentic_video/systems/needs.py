"""Whether the episodes of rows can be scored, asked before the first one is played."""

from collections.abc import Collection, Sequence

from agentic_video.systems.base import OPEN_ENDED, Grader, System
from agentic_video.types.row import RowError, VideoQA
from agentic_video.utils.errors import SetupError


def check_needs(
    where: str,
    rows: Sequence[VideoQA],
    system: System,
    missing: Collection[Grader],
    *,
    demonstrations: bool = False,
) -> None:
    """Make sure that the score of each row's episodes can be had: else all of them would fail, one after the other.

    A system whose ``score`` or ``grade`` isn't the one that its ``needs`` is about isn't asked.

    Args:
        where: Where the rows are from.
        missing: Whom nobody can ask.
        demonstrations: Whether the episodes are scored as demonstrations, which some systems ask less of.

    Raises:
        SetupError: Of some it can't; the message says of how many, and what to set.
    """
    if not _says_needs(system, demonstrations):
        return
    needs_of = system.demonstration_needs if demonstrations else system.needs
    unnamed: dict[tuple[Grader, str], int] = {}
    faults: list[str] = []
    for qa in rows:
        try:
            for need in needs_of(qa).items():
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


def judged(system: System, qa: VideoQA) -> str:
    """What a row is whose answers a judge reads in :meth:`System.grade` (``are open ended``); empty for any other, and
    where the system doesn't say."""
    if type(system).grade is System.grade:
        return OPEN_ENDED["judge"] if qa.answer_type == "open_ended" else ""
    if not _says_needs(system, demonstrations=True):
        return ""
    try:
        return system.demonstration_needs(qa).get("judge", "")
    except RowError:
        return ""


def _says_needs(system: System, demonstrations: bool) -> bool:
    """Whether what it says it needs is as far down the system's classes as what that is about."""
    lineage = type(system).__mro__

    def place(name: str) -> int:
        return next(place for place, cls in enumerate(lineage) if name in vars(cls))

    scored = min(place("score"), place("grade"))
    if not demonstrations:
        return place("needs") <= scored
    # Its own word counts first, then that of `needs`, which it asks.
    said = min(place("demonstration_needs"), place("needs"))
    return said <= min(scored, place("demonstration_score"))
