"""Classes of questions, and sizes of the sets drawn by them (VideoBrain, sections 3.2 and 4.1): rules over records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, NonNegativeInt

from agentic_video.synthesis.verify import demonstration_fault
from agentic_video.systems.base import System
from agentic_video.systems.registry import SYSTEMS, system_class
from agentic_video.types.record import Record
from agentic_video.types.row import QuestionClass
from agentic_video.types.trajectory import Trajectory
from agentic_video.utils.option_types import Fraction

CLASSES: tuple[QuestionClass, ...] = get_args(QuestionClass)

Slip = Literal["drop", "direct"]
"""A question that the base model gets right and the teacher, without tools, wrong; the paper doesn't say."""

DROPPED_WITH = "dropped: base right, teacher wrong with tools"
DROPPED_WITHOUT = "dropped: base right, teacher wrong without tools"


@dataclass(frozen=True)
class Side:
    """One model's samples of a question, summed up."""

    right: bool  # more than half of the answers are right
    used_tools: bool  # at least half of the episodes that agree with `right` called a tool
    samples: int
    right_samples: int


def side_of(records: Sequence[Record], right_from: float) -> Side | None:
    """Sum a model's samples up; None where there are none, or one has no grade."""
    if not records or any("acc" not in record.rewards for record in records):
        return None
    good = [record for record in records if record.rewards["acc"] >= right_from]
    right = 2 * len(good) > len(records)
    agreeing = [record for record in records if (record.rewards["acc"] >= right_from) == right]
    users = sum(record.trajectory.tool_calls > 0 for record in agreeing)
    return Side(right, 2 * users >= len(agreeing), len(records), len(good))


def class_of(base: Side, teacher: Side, slip: Slip = "drop") -> str:
    """The class of a question, or why it has none (section 3.2)."""
    if base.right and teacher.right:
        return "direct"
    if base.right:
        if teacher.used_tools:
            return DROPPED_WITH
        return "direct" if slip == "direct" else DROPPED_WITHOUT
    if teacher.right and not teacher.used_tools:
        return "adaptive"
    return "active"


@dataclass(frozen=True)
class Quota:
    """Size of a set in rows, and the share of each class."""

    size: int
    shares: Mapping[QuestionClass, float]

    def rows(self, kind: QuestionClass, factor: float = 1.0) -> int:
        """Rows of a class, in a set that is smaller by a factor."""
        exact = self.size * self.shares.get(kind, 0.0)
        # Rounded down only where rows are scarce: 1 600 of 42.3 % are 677.
        return round(exact) if factor >= 1 else int(factor * exact + 1e-9)


def set_sizes(
    rows: Mapping[QuestionClass, int], usable: Mapping[QuestionClass, int], sft: Quota, rl: Quota, fill: bool = False
) -> tuple[dict[QuestionClass, int], dict[QuestionClass, int]]:
    """Numbers of rows of each class in the SFT set and in the RL set; no row is in both.

    Where rows are scarce both sets shrink by one factor, so that all shares hold. ``usable`` rows have a trajectory to
    learn from; ``fill`` takes of each class what there is, up to the quota, SFT first.
    """
    if fill:
        learnt = {kind: min(sft.rows(kind), usable.get(kind, 0)) for kind in CLASSES}
        return learnt, {kind: min(rl.rows(kind), rows.get(kind, 0) - learnt[kind]) for kind in CLASSES}
    factor = 1.0
    for kind in CLASSES:
        least = sft.rows(kind)
        for have, want in ((usable.get(kind, 0), least), (rows.get(kind, 0), least + rl.rows(kind))):
            factor = min(factor, have / want) if want else factor
    return (
        {kind: sft.rows(kind, factor) for kind in CLASSES},
        {kind: rl.rows(kind, factor) for kind in CLASSES},
    )


def read_shares(text: str) -> dict[QuestionClass, float]:
    """Read ``CLASS=SHARE,...``; the shares add up to 1."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    found = {kind: float(value) for name, _, value in pairs for kind in CLASSES if kind == name.strip()}
    if len(found) != len(pairs) or not all(0 <= share <= 1 for share in found.values()):
        raise ValueError(f"expected each of {', '.join(CLASSES)} at most once, as CLASS=SHARE")
    if abs(sum(found.values()) - 1) > 1e-6:
        raise ValueError(f"the shares add up to {sum(found.values()):g}, not to 1")
    return found


def _checked_shares(text: str) -> str:
    read_shares(text)
    return text


Shares = Annotated[str, AfterValidator(_checked_shares)]


@dataclass(frozen=True, kw_only=True)
class SetOptions:
    """Rules of the classes and of the sets, whose sizes and shares are the paper's (section 4.1) by default."""

    right_from: Fraction = 1.0
    """grade from which an answer is right"""
    slip: Slip = "drop"
    """fate of a question that the base model gets right and the teacher, without tools, wrong"""
    sft_size: NonNegativeInt = 1_600
    """rows of the SFT set"""
    sft_shares: Shares = "adaptive=0.423,active=0.577"
    """shares of the classes in the SFT set"""
    sft_wrong: bool = False
    """where the teacher was never right, learn from a wrong trajectory"""
    rl_size: NonNegativeInt = 6_400
    """rows of the RL set"""
    rl_shares: Shares = "direct=0.449,adaptive=0.081,active=0.47"
    """shares of the classes in the RL set"""
    fill: bool = False
    """where a class is scarce, break the shares rather than make both sets smaller"""
    draw: NonNegativeInt = 0
    """seed of the choice of rows"""

    @property
    def sft(self) -> Quota:
        """The SFT set."""
        return Quota(self.sft_size, read_shares(self.sft_shares))

    @property
    def rl(self) -> Quota:
        """The RL set."""
        return Quota(self.rl_size, read_shares(self.rl_shares))


def demonstration(
    records: Sequence[Record], right_from: float, wrong_too: bool = False, played: System | None = None
) -> Record | None:
    """The teacher's first right trajectory that is worth imitating; ``played`` is the system that it played here."""
    good = [record for record in records if imitable(record.trajectory, played)]
    right = [record for record in good if record.rewards.get("acc", 0.0) >= right_from]
    return next(iter(right or (good if wrong_too else [])), None)


def imitable(trajectory: Trajectory, played: System | None = None) -> bool:
    """Return True for an answered episode without an illegal call in which its system finds no fault."""
    if trajectory.answer is None or trajectory.illegal_calls:
        return False
    system = played
    if system is None or system.name != trajectory.system:
        system = system_class(trajectory.system)() if trajectory.system in SYSTEMS else None
    return system is None or demonstration_fault(system, trajectory) is None
