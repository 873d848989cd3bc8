"""Cognitive Consistency Verification (FrameThinker, section 3.3.2 and appendix D.3): do the actions follow from the
thoughts, and from each other?

All or nothing: one failing action fails the episode, and no later action can mend it. So the verdict on a finished
episode is also the verdict of a guard that stops at the first failing action.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from agentic_video.systems.framethinker.grammar import Look, Lookup, Step, Steps
from agentic_video.types.action import Answer

Check = Literal["redundancy", "logical_flow", "fidelity", "width"]

# An integer that isn't part of a clock time (released code).
_INTEGER = re.compile(r"(?<!:)\b([0-9]+)\b(?!:)", re.ASCII)


@dataclass(frozen=True)
class ConsistencyRules:
    """The checks, and their use.

    Attributes:
        enable: Whether a failed check takes the whole reward (paper, Eq. 6).
        redundancy: Check for looks and lookups that repeat what was seen.
        logical_flow: Check that what a lookup returned is used.
        fidelity: Check that an action does what its thought said.
        width: Check for looks at too short a stretch.
        min_width: A look from A to B fails when A >= B - ``min_width`` (frames). The released code has 8 whatever the
            number of frames of a look; ``sampled``: as many as a look shows.
    """

    enable: bool = True
    redundancy: bool = True
    logical_flow: bool = True
    fidelity: bool = True
    width: bool = True
    min_width: Annotated[int, Field(ge=0)] | Literal["sampled"] = 8


def failed_checks(episode: Steps, rules: ConsistencyRules) -> tuple[Check, ...]:
    """The failed checks of an episode or its beginning, in the order of :data:`Check`; ``enable`` isn't looked at."""
    steps, looks = episode.steps, episode.looks
    failed: list[Check] = []
    if rules.redundancy and (_repeats_look(looks, episode.overview_end) or _repeats_lookup(steps)):
        failed.append("redundancy")
    if rules.logical_flow and any(_ignores(before, after) for before, after in pairwise(steps)):
        failed.append("logical_flow")
    if rules.fidelity and any(_last_integers(look.thought) != look.pair for look in looks):
        failed.append("fidelity")
    if rules.width and any(_is_narrow(look, rules.min_width) for look in looks):
        failed.append("width")
    return tuple(failed)


def _repeats_look(looks: Sequence[Look], overview_end: int | None) -> bool:
    """The same pair, the whole of what the overview spans, a pair one frame inside an earlier one (released code), or
    the same frames by another pair: two ends beyond the video's."""
    pairs: set[tuple[int, int]] = set()
    shown: set[tuple[int, ...]] = set()
    for look in looks:
        start, end = look.pair
        whole = overview_end is not None and start == 0 and end >= overview_end
        if whole or look.pair in pairs or look.shown in shown:
            return True
        pairs |= {look.pair, (start + 1, end - 1)}
        if look.shown:
            shown.add(look.shown)
    return False


def _repeats_lookup(steps: Sequence[Step]) -> bool:
    times = [step.seconds for step in steps if isinstance(step, Lookup)]
    return len(set(times)) < len(times)


def _ignores(before: Step, after: Step) -> bool:
    """Whether a lookup is followed by an answer, or by a look elsewhere."""
    if not isinstance(before, Lookup):
        return False
    if isinstance(after, Answer):
        return True
    if isinstance(after, Look) and before.number is not None:
        return not after.pair[0] <= before.number <= after.pair[1]
    return False


def _last_integers(thought: str) -> tuple[int, int] | None:
    numbers = _INTEGER.findall(thought)[-2:]
    # Longer ones equal no pair, and int() refuses thousands of digits.
    if len(numbers) < 2 or any(len(number) > 18 for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1])


def _is_narrow(look: Look, min_width: int | str) -> bool:
    start, end = look.pair
    if isinstance(min_width, str):
        # Of a look that wasn't carried out nothing is known.
        return bool(look.shown) and start >= end - len(look.shown)
    return start >= end - min_width
