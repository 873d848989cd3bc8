"""Ablations of a system in evaluation: without tools, or with another number of frames or calls.

A system may implement ``direct()``, ``with_frames(count)`` and ``with_calls(count)`` itself; the defaults here suit
dataclasses with the fields ``prompt``, ``overview`` and ``max_turns`` that read ``<answer>``."""

from dataclasses import fields, replace
from typing import Any

from agentic_video.systems.base import System


def without_tools(system: System) -> System:
    """The system with the same overview and one turn, which must answer; without an overview, evenly spaced frames."""
    if hasattr(system, "direct"):
        changed: System = system.direct()
        return changed
    changes: dict[str, Any] = {"max_turns": 1, "prompt": "direct"}
    if getattr(system, "overview", "") == "none":
        changes["overview"] = "uniform"
    return replace(system, **changes)  # type: ignore[type-var]


def with_frames(system: System, count: int) -> System:
    """The system whose first view has ``count`` frames; an episode may show as many more images."""
    if hasattr(system, "with_frames"):
        changed: System = system.with_frames(count)
        return changed
    names = getattr(system, "first_view_fields", ("overview_frames",))
    known = {field.name for field in fields(system)}  # type: ignore[arg-type]
    if getattr(system, "overview", "") == "none" or not known.issuperset(names):
        raise ValueError(f"{system.name} has no such number of frames")
    more = max(0, count - max(getattr(system, name) for name in names))
    changes = {**dict.fromkeys(names, count), "max_images": system.max_images + more}
    return replace(system, **changes)  # type: ignore[type-var]


def with_calls(system: System, count: int) -> System:
    """The system with at most ``count`` turns that call, and one that answers."""
    if hasattr(system, "with_calls"):
        changed: System = system.with_calls(count)
        return changed
    return replace(system, max_turns=count + 1) if count else without_tools(system)  # type: ignore[type-var]
