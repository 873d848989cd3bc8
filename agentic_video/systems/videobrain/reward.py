"""VideoBrain's reward (paper section 3.4 and appendix C; released code for the behaviour matrix).

``gate * (0.05 + accuracy + behaviour)``: an episode that breaks the format earns nothing, and what the use of tools is
worth depends on whether the question needed them.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, cast, get_args

from agentic_video.systems.videobrain.grammar import TOOLS
from agentic_video.tools.base import ToolError
from agentic_video.tools.clip_sample import read_prompt
from agentic_video.tools.uniform_sample import read_range
from agentic_video.types.action import Calls, ToolCall
from agentic_video.types.row import QuestionClass, RowError, VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory

Unclassed = Literal["refused", "none"] | QuestionClass
"""Treatment of a row without a class: it is ``refused``, it pays no behaviour (``none``), or it counts as one."""
CLASS_FIELD = "extra_info.class"
BLOCKS = ("thinking", "tool_call", "answer")
_TAG = re.compile(rf"</?(?:{'|'.join(BLOCKS)})>")


@dataclass(frozen=True)
class VideoBrainWeights:
    """Weights of the reward's terms. The behaviour matrix is one field a cell: class, answer, with or without tools.

    Attributes:
        format: Of passing the format gate.
        acc: Of a right answer, in proportion to its grade.
        direct_right_without: Direct question, right answer, no tool used.
        direct_right_with: Direct question, right answer, a tool used.
        direct_wrong_without: Direct question, wrong answer, no tool used.
        direct_wrong_with: Direct question, wrong answer, a tool used.
        adaptive_right_without: Adaptive question, right answer, no tool used.
        adaptive_right_with: Adaptive question, right answer, a tool used.
        adaptive_wrong_without: Adaptive question, wrong answer, no tool used.
        adaptive_wrong_with: Adaptive question, wrong answer, a tool used.
        active_right_without: Active question, right answer, no tool used.
        active_right_with: Active question, right answer, a tool used.
        active_wrong_without: Active question, wrong answer, no tool used.
        active_wrong_with: Active question, wrong answer, a tool used.
    """

    format: float = 0.05
    acc: float = 1.0
    direct_right_without: float = 0.5
    direct_right_with: float = 0.0
    direct_wrong_without: float = 0.0
    direct_wrong_with: float = 0.0
    adaptive_right_without: float = 0.5
    adaptive_right_with: float = 0.5
    adaptive_wrong_without: float = 0.0
    adaptive_wrong_with: float = 0.0
    active_right_without: float = 0.0
    active_right_with: float = 0.5
    active_wrong_without: float = 0.0
    active_wrong_with: float = 0.2

    def behaviour(self, question_class: QuestionClass, *, right: bool, used_tools: bool) -> float:
        """One cell of the matrix (paper, Tables 1 and 5)."""
        cell = f"{question_class}_{'right' if right else 'wrong'}_{'with' if used_tools else 'without'}"
        return float(getattr(self, cell))


def question_class(qa: VideoQA) -> QuestionClass:
    """The class of a row."""
    value = qa.extra.get("class")
    if value not in get_args(QuestionClass):
        raise RowError(
            f"row {qa.id}: field '{CLASS_FIELD}' must be one of {get_args(QuestionClass)}, got {value!r}: "
            "VideoBrain's reward depends on what the question needs (rows without one: agentic_video.system.unclassed)"
        )
    return cast(QuestionClass, value)


def gate_fault(trajectory: Trajectory, duplicate_margin: int, tools: Collection[str] = TOOLS) -> str | None:
    """The first rule of the format gate that an episode breaks, or None (paper, section 3.4 and appendix C.1).

    Tags are counted over all turns. Two rules are added to the published ones: each turn is one thought and then one
    call or the answer, in this order and not inside each other; and a refused call fails, as it ends the released
    code's episode unanswered. Two ranges whose ends are both within ``duplicate_margin`` frames are the same.
    """
    if trajectory.answer is None:
        return "no answer"
    tags = [list(_TAG.finditer(turn.text)) for turn in trajectory.turns]
    names = [tag.group() for found in tags for tag in found]
    if any(names.count(f"<{block}>") != names.count(f"</{block}>") for block in BLOCKS):
        return "unequal tags"
    if names.count("<thinking>") != names.count("<tool_call>") + names.count("<answer>"):
        return "thoughts don't equal calls and answers"
    last = len(tags) - 1
    for number, found in enumerate(tags):
        block = "answer" if number == last else "tool_call"
        if [tag.group() for tag in found] != ["<thinking>", "</thinking>", f"<{block}>", f"</{block}>"]:
            return "blocks out of order"
    for turn, found in zip(trajectory.turns, tags, strict=True):
        for opened, closed in ((0, 1), (2, 3)):
            if not turn.text[found[opened].end() : found[closed].start()].strip():
                return "empty block"
    calls: list[ToolCall] = []
    for turn in trajectory.turns[:-1]:
        if not isinstance(turn.action, Calls):
            return "unreadable call"
        calls += turn.action.calls
    fault = _call_fault(calls, duplicate_margin, tools)
    if fault is None and trajectory.illegal_calls:
        return "refused call"
    return fault


def _call_fault(calls: list[ToolCall], duplicate_margin: int, tools: Collection[str]) -> str | None:
    """The first rule about calls that is broken, in the order of the calls."""
    ranges: list[tuple[int, int]] = []
    prompts: set[str] = set()
    for call in calls:
        if call.name not in tools:
            return "unknown tool"
        try:
            start, end = read_range(call.arguments)
        except ToolError:
            return "bad range"
        if call.name == "uniform_sample":
            if any(max(abs(start - s), abs(end - e)) <= duplicate_margin for s, e in ranges):
                return "duplicate range"
            ranges.append((start, end))
            continue
        try:
            prompt = read_prompt(call.arguments)
        except ToolError:
            return "bad prompt"
        if prompt in prompts:
            return "duplicate prompt"
        prompts.add(prompt)
    return None


def videobrain_score(
    trajectory: Trajectory,
    kind: QuestionClass | None,
    acc: float,
    passed: bool,
    weights: VideoBrainWeights,
    *,
    gated: bool = True,
) -> Score:
    """``gate * (w_format + w_acc * acc + behaviour)``; without the gate ``w_acc * acc + behaviour``.

    Args:
        kind: The question's class; None pays no behaviour.
        passed: Whether the episode passed the format gate; if not, every term is 0.
        gated: Whether the format is checked at all. Where it isn't, nothing is paid for it either.
    """
    if gated and not passed:
        return Score(reward=0.0, acc=0.0, format=0.0, terms=dict.fromkeys(("format", "acc", "behaviour"), 0.0))
    used_tools = trajectory.tool_calls > 0
    terms = {
        "format": weights.format * gated,
        "acc": weights.acc * acc,
        "behaviour": 0.0 if kind is None else weights.behaviour(kind, right=acc >= 1.0, used_tools=used_tools),
    }
    return Score(reward=sum(terms.values()), acc=acc, format=float(passed), terms=terms)
