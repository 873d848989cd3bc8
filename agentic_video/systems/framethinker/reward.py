"""FrameThinker's reward (paper section 3.3 and appendix D; released code for the conditions)."""

from dataclasses import dataclass
from typing import Literal

from agentic_video.systems.framethinker.consistency import Check
from agentic_video.systems.framethinker.grammar import ACTION_CLOSE, ACTION_OPEN, THINK_CLOSE, THINK_OPEN
from agentic_video.types.action import Calls
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory, Turn

Bonus = Literal["actions", "turns"]
_TAGS = (THINK_OPEN, THINK_CLOSE, ACTION_OPEN, ACTION_CLOSE)


@dataclass(frozen=True)
class FrameThinkerWeights:
    """Weights of the reward's terms. The defaults are the large-scale experiment's (paper, section 4.2).

    The small-scale experiment has ``lookup`` 0.2 and ``choose`` 0. The designs that the paper studied and rejected are
    ``format`` above 0, ``conditional`` off (with 0.2 for one of the actions) and ``bonus: turns``.

    Attributes:
        acc: Of a right answer.
        lookup: lambda_gfn, of having looked up a frame number (large scale; the small-scale experiment has 0.2).
        choose: lambda_cf, of having chosen frames (large scale; the small-scale experiment has 0).
        bonus: ``actions``: the two above. ``turns``: a reward for more turns in their place (paper, Eq. 7).
        conditional: Whether a bonus is paid for right answers only. If not, it is paid for having acted at all: a
            lookup needs no clock time in the question then (paper, D.1).
        turn: Of each turn but the last, with ``bonus: turns`` (paper, D.2).
        turn_cap: Most that turns can earn (paper, D.2).
        format: Of following the grammar (the paper leaves it out on purpose and gives no number).
        format_gate: Whether an episode that doesn't follow the grammar, or doesn't answer, earns nothing (released
            code). Off, together with ``conditional``, is the bonus of D.1 as published: paid once an action was
            executed, whatever follows.
    """

    acc: float = 1.0
    lookup: float = 0.5
    choose: float = 0.02
    bonus: Bonus = "actions"
    conditional: bool = True
    turn: float = 0.2
    turn_cap: float = 0.6
    format: float = 0.0
    format_gate: bool = True


def _turn_ok(turn: Turn) -> bool:
    """Exactly one thought, and after it exactly one action."""
    if any(turn.text.count(tag) != 1 for tag in _TAGS):
        return False
    places = [turn.text.index(tag) for tag in _TAGS]
    return places == sorted(places)


def format_ok(trajectory: Trajectory) -> bool:
    """Every turn is one thought and one action, all but the last were carried out, the last answers (released code)."""
    if trajectory.answer is None:
        return False
    earlier = trajectory.turns[:-1]
    return all(_turn_ok(turn) for turn in trajectory.turns) and all(
        isinstance(turn.action, Calls) and turn.legal_calls == 1 and turn.illegal_calls == 0 for turn in earlier
    )


def framethinker_score(
    trajectory: Trajectory, acc: float, *, looked_up: bool, failed: tuple[Check, ...], weights: FrameThinkerWeights
) -> Score:
    """``[format] * [consistent] * (w_acc * acc + bonus + w_format)`` (paper, Eqs. 4 to 7; the format gate: released
    code, and a switch).

    Args:
        looked_up: Whether the question contains a clock time and a lookup returned a frame beyond the first.
        failed: The failed consistency checks that take the reward.

    Returns:
        The score; its term ``ccv`` is what the failed checks take away.
    """
    fmt = float(format_ok(trajectory))
    paid = fmt if weights.format_gate else 1.0
    bonus = _bonus(trajectory, looked_up, weights)
    if not paid or (weights.conditional and acc != 1.0):
        bonus = dict.fromkeys(bonus, 0.0)
    terms = {"acc": weights.acc * acc * paid, **bonus, "format": weights.format * fmt}
    terms["ccv"] = -sum(terms.values()) if failed else 0.0
    return Score(reward=0.0 if failed else sum(terms.values()), acc=acc, format=fmt, terms=terms)


def _bonus(trajectory: Trajectory, looked_up: bool, weights: FrameThinkerWeights) -> dict[str, float]:
    if weights.bonus == "turns":
        return {"turns": min(weights.turn * (len(trajectory.turns) - 1), weights.turn_cap)}
    used = {
        call.name
        for turn in trajectory.turns
        if isinstance(turn.action, Calls) and turn.legal_calls
        for call in turn.action.calls
    }
    lookup = looked_up if weights.conditional else "frame_number" in used
    return {"lookup": weights.lookup * lookup, "choose": weights.choose * ("choose_frames" in used)}
