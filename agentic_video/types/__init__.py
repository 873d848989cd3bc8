"""Schemas of rows, messages, actions, trajectories and records. Nothing here imports another room.

The names are looked up when they are first used: commands that read none of them start where numpy isn't installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
    from agentic_video.types.frame import Frame
    from agentic_video.types.message import Message, Observation, Part
    from agentic_video.types.row import VideoQA
    from agentic_video.types.score import Score
    from agentic_video.types.trajectory import Aside, EndReason, FrameRef, Trajectory, Turn

_MODULES = {
    "action": ("Action", "Answer", "Calls", "Illegal", "ToolCall"),
    "frame": ("Frame",),
    "message": ("Message", "Observation", "Part"),
    "row": ("VideoQA",),
    "score": ("Score",),
    "trajectory": ("Aside", "EndReason", "FrameRef", "Trajectory", "Turn"),
}

__all__ = [
    "Action",
    "Answer",
    "Aside",
    "Calls",
    "EndReason",
    "Frame",
    "FrameRef",
    "Illegal",
    "Message",
    "Observation",
    "Part",
    "Score",
    "ToolCall",
    "Trajectory",
    "Turn",
    "VideoQA",
]


def __getattr__(name: str) -> object:
    """Import the module that defines a name."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
