"""Classes of questions, and sizes of the sets drawn by them (VideoBrain, sections 3.2 and 4.1): rules over records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from agentic_video.synthesis.verify import demonstration_fault
from agentic_video.systems.base import System
from agentic_video.systems.registry import SYSTEMS, system_class
from agentic_video.types.record import Record
from agentic_video.types.row import QuestionClass
from agentic_video.types.trajectory import Trajectory

CLASSES: tuple[QuestionClass, ...] = get_args(QuestionClass)

SFT_SIZE, RL_SIZE = 1_600, 6_400
SFT_SHARES: dict[QuestionClass, float] = {"adaptive": 0.423, "active": 0.577}
RL_SHARES: dict[QuestionClass, float] = {"direct": 0.449, "adaptive": 0.081, "active": 0.470}
"""Sizes and shares of the paper's sets (section 4.1)."""

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


@dataclass(frozen=True)
class SetOptions:
    """Rules of the classes and of the sets."""

    right_from: float = 1.0  # grade from which an answer is right
    slip: Slip = "drop"
    sft: Quota = Quota(SFT_SIZE, SFT_SHARES)
    rl: Quota = Quota(RL_SIZE, RL_SHARES)
    fill: bool = False  # rather break the shares than shrink the sets: take of each class what there is
    wrong_too: bool = False  # learn from a wrong trajectory where no sample is right
    seed: int = 0


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
