"""FrameMind's reward (paper, section 3.5 and appendix B.1)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from agentic_video.systems.blocks import read_blocks
from agentic_video.systems.framemind.grammar import TAGS, TOOLS, evidence_header
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory

TurnBonus = Literal["turns", "turn_sums"]
"""Unit of the turn bonus: the turns (equation 8), or the closed ``<turn_sum>`` blocks (equation 13)."""


@dataclass(frozen=True)
class FrameMindWeights:
    """Weights of the reward's terms.

    Attributes:
        acc: Of a right answer.
        format: Taken off when the grammar isn't followed.
        one_tool: The tool score when one kind of tool was used.
        both_tools: The tool score when both were.
        exploration: Share of the tool score that is paid whatever the answer; the rest is for a right one. 0 is the
            ablation's strict gating (section 4.6).
        turn: Of an episode of ``min_turns`` to ``max_turns`` turns.
        turn_bonus: What is counted for that: ``turns`` (equation 8) or ``turn_sums`` (equation 13).
        min_turns: Fewest that earn the bonus.
        max_turns: Most that earn it.
    """

    acc: float = 1.0
    format: float = 1.0
    one_tool: float = 1.0
    both_tools: float = 1.2
    exploration: float = 0.2
    turn: float = 0.5
    turn_bonus: TurnBonus = "turns"
    min_turns: int = 2
    max_turns: int = 3


def used_tools(trajectory: Trajectory) -> set[str]:
    """The kinds of tools whose evidence was shown. A refused call is no use, nor is one whose frames didn't fit."""
    shown = {part for turn in trajectory.turns for part in turn.observation if isinstance(part, str)}
    return {tool for tool in TOOLS if evidence_header(tool) in shown}


def format_ok(trajectory: Trajectory) -> bool:
    """The episode is answered and every turn is made of closed blocks, with nothing else between them.

    The last turn: thoughts, then one answer (equation 12). Earlier ones: a thought, then calls and thoughts, and one
    turn summary at the end (appendix B.1). A refused call doesn't break the format: it may be corrected (appendix B.3).
    """
    if trajectory.answer is None:
        return False
    *earlier, last = trajectory.turns
    return _turn_ok(last.text, {"think"}, "answer") and all(
        _turn_ok(turn.text, {"think", "tool_call"}, "turn_sum") for turn in earlier
    )


def _turn_ok(text: str, inner: Collection[str], end: str) -> bool:
    read = read_blocks(text, TAGS)
    tags = [block.tag for block in read.blocks]
    return read.clean and tags[:1] == ["think"] and tags[-1] == end and set(tags[:-1]) <= set(inner)


def _count(trajectory: Trajectory, what: TurnBonus) -> int:
    if what == "turns":
        return len(trajectory.turns)
    # At most one a turn: a second one in the same turn summarizes nothing that was seen since.
    return sum(bool(read_blocks(turn.text, TAGS).bodies("turn_sum")) for turn in trajectory.turns)


def framemind_score(trajectory: Trajectory, acc: float, weights: FrameMindWeights) -> Score:
    """``acc + format + tool score * (0.2 + 0.8 acc) + 0.5 [2 or 3 turns]``, format being 0 or -1 (equations 5 to 9).

    The turn bonus and the tool score's smaller part are paid for unanswered episodes too: the paper makes no exception.
    """
    fmt = float(format_ok(trajectory))
    tool = (0.0, weights.one_tool, weights.both_tools)[len(used_tools(trajectory))]
    in_time = weights.min_turns <= _count(trajectory, weights.turn_bonus) <= weights.max_turns
    terms = {
        "acc": weights.acc * acc,
        "format": weights.format * (fmt - 1.0),
        "tool": tool * (weights.exploration + (1.0 - weights.exploration) * acc),
        "turn": weights.turn * in_time,
    }
    return Score(reward=sum(terms.values()), acc=acc, format=fmt, terms=terms)
