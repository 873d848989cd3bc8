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
"""Budget of a look in visual tokens; a system has the number."""
STRATEGIES: tuple[str, ...] = get_args(Strategy)
FIELDS = ("temporal_segment", "sampling_strategy")


@dataclass(frozen=True)
class GroundRequest:
    """A legal request: the segment from ``start`` to ``end`` (seconds) within the video, and its sampling strategy."""

    start: float
    end: float
    strategy: Strategy


def read_grounding(body: str) -> dict[str, Any]:
    """Read a call's JSON object, repaired where it is nearly one, as the released port does.

    Tried in order: the text, its part from the first to the last brace, and that with double quotes for single ones.
    """
    inside = body[body.find("{") : body.rfind("}") + 1]
    for text in (body, inside):
        try:
            return read_json_object(text)
        except ToolError:
            continue
    return read_json_object(inside.replace("'", '"') or body)


def json_errors(body: str) -> int:
    """Count the errors of a call's JSON, unrepaired (released port): one for no JSON object, else one for each field
    that isn't a list of two or the name of a strategy."""
    try:
        call = read_json_object(body)
    except ToolError:
        return 1
    segment, strategy = (call.get(field) for field in FIELDS)
    named = isinstance(strategy, str) and strategy in STRATEGIES
    return int(not (isinstance(segment, list) and len(segment) == 2)) + int(not named)


def check_grounding(arguments: Mapping[str, Any], duration: float, shortest: float = 1.0) -> GroundRequest:
    """Check a request and clamp its segment, which must last ``shortest`` seconds, to the video."""
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
    """Frames of a stretch at a fixed rate, within both limits and even, as a model merges them two by two."""
    wanted = min(max(seconds * fps, least), most)
    return max(2, int(wanted) // 2 * 2)
