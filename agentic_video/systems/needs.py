"""Check that the episodes of rows can be scored, before the first one runs."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from agentic_video.systems.base import System
from agentic_video.types.row import RowError, VideoQA
from agentic_video.utils.errors import SetupError

Grader = Literal["judge", "verifier"]
"""External graders (:class:`~agentic_video.graders.base.Graders`)."""

OPEN_ENDED: Mapping[Grader, str] = {"judge": "are open ended"}
"""The graders of rows whose answers a judge reads."""


def judge_needs(qa: VideoQA) -> Mapping[Grader, str]:
    """The judge, for an open-ended row."""
    return OPEN_ENDED if qa.answer_type == "open_ended" else {}


def score_needs(system: System, qa: VideoQA) -> Mapping[Grader, str]:
    """Graders that a score asks about a row's episodes, each with what its rows are (``are open ended``): the system's
    ``needs`` where it has them, else :func:`judge_needs`.

    Raises:
        RowError: The row lacks what the score is made of.
    """
    asked: Mapping[Grader, str] = getattr(system, "needs", judge_needs)(qa)
    return asked


def check_needs(
    where: str, rows: Sequence[VideoQA], system: System, missing: Collection[Grader], *, demonstrations: bool = False
) -> None:
    """Make sure that each row's episodes can be scored: else all of them would fail, one after the other.

    Args:
        where: Where the rows are from.
        missing: Graders that aren't configured.
        demonstrations: Whether the episodes are scored as demonstrations, which need less.

    Raises:
        SetupError: Some can't; the message has their number and the remedy.
    """
    needs = demonstration_needs if demonstrations else score_needs
    unmet: dict[tuple[Grader, str], int] = {}
    faults: list[str] = []
    for qa in rows:
        try:
            for need in needs(system, qa).items():
                if need[0] in missing:
                    unmet[need] = unmet.get(need, 0) + 1
        except RowError as error:
            faults.append(str(error))
    if faults:
        raise SetupError(
            f"{where}: {len(faults)} of {len(rows)} rows can't be scored: mend them or leave them out; the first: "
            f"{faults[0]}"
        )
    for (grader, rows_are), count in unmet.items():
        raise SetupError(
            f"{where}: {count} of {len(rows)} rows {rows_are}: set agentic_video.{grader}.base_url and "
            f"agentic_video.{grader}.model, leave them out, or override {type(system).__name__}.needs where no "
            f"{grader} is asked",
            key=f"agentic_video.{grader}.base_url",
        )


def demonstration_needs(system: System, qa: VideoQA) -> Mapping[Grader, str]:
    """Graders that a demonstration's score asks: the system's ``demonstration_needs``, else :func:`score_needs`."""
    own = getattr(system, "demonstration_needs", None)
    return own(qa) if own else score_needs(system, qa)


def judged(system: System, qa: VideoQA) -> str:
    """Return what a row is whose answers a judge reads in :meth:`System.grade` (``are open ended``), else empty."""
    try:
        return demonstration_needs(system, qa).get("judge", "")
    except RowError:
        return ""
