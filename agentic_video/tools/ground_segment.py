"""``ground_segment``: a closer look at a segment, with as many visual tokens as the agent asks for (Video-o3's
``<grounding>``; released port for the limits)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from agentic_video.tools.arguments import number, read_json_object
from agentic_video.tools.base import ToolError

NAME = "ground_segment"
Strategy = Literal["coarse", "medium", "fine"]
"""How many visual tokens a look may cost; a system says how many that are."""
STRATEGIES: tuple[str, ...] = get_args(Strategy)
FIELDS = ("temporal_segment", "sampling_strategy")


@dataclass(frozen=True)
class GroundRequest:
    """A legal request: the segment from ``start`` to ``end`` (seconds) within the video, and its sampling strategy."""

    start: float
    end: float
    strategy: Strategy


def read_grounding(body: str) -> dict[str, Any]:
    """The JSON object of a call, repaired where it is nearly one.

    First as it is; else what lies between its first and its last brace; else that with double quotes in place of single
    ones. These are the released port's repairs, and nothing else is guessed.

    Raises:
        ToolError: It still isn't one, or it holds what no call may hold.
    """
    inside = body[body.find("{") : body.rfind("}") + 1]
    for text in (body, inside):
        try:
            return read_json_object(text)
        except ToolError:
            continue
    return read_json_object(inside.replace("'", '"') or body)


def json_errors(body: str) -> int:
    """How many errors a call's JSON has, unrepaired (released port).

    One for what is no JSON object, else one for each of the two fields that is missing, or isn't a list of two, or
    isn't the name of a strategy. What the numbers say is not looked at.
    """
    try:
        call = read_json_object(body)
    except ToolError:
        return 1
    segment, strategy = (call.get(field) for field in FIELDS)
    named = isinstance(strategy, str) and strategy in STRATEGIES
    return int(not (isinstance(segment, list) and len(segment) == 2)) + int(not named)


def check_grounding(arguments: Mapping[str, Any], duration: float, shortest: float = 1.0) -> GroundRequest:
    """Check a request and clamp its segment to the video.

    Args:
        arguments: ``temporal_segment`` (``[start, end]`` in seconds) and ``sampling_strategy``.
        duration: Length of the video in seconds.
        shortest: Least length of the clamped segment in seconds.

    Raises:
        ToolError: The request is illegal; the message says why.
    """
    for field in FIELDS:
        if field not in arguments:
            raise ToolError(f"{field} is missing")
    segment, strategy = (arguments[field] for field in FIELDS)
    if not isinstance(segment, list) or len(segment) != 2:
        raise ToolError("temporal_segment must be [start, end] in seconds")
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise ToolError(f"sampling_strategy must be one of {json.dumps(list(STRATEGIES))}")
    start = max(number(segment[0], "the segment's start"), 0.0)
    end = min(number(segment[1], "the segment's end"), duration)
    if start > end - shortest:
        raise ToolError(
            f"the segment must last {shortest:g} s at least within the video, which lasts {duration:.2f} seconds"
        )
    return GroundRequest(start, end, cast(Strategy, strategy))


def frame_count(seconds: float, fps: float, least: int, most: int) -> int:
    """Frames of a stretch at a fixed rate, kept within both limits and even, as a model merges them two by two.

    Args:
        seconds: Length of the stretch.
        fps: Frames a second between the limits.
    """
    wanted = min(max(seconds * fps, least), most)
    return max(2, int(wanted) // 2 * 2)
