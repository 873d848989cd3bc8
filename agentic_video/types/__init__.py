"""What flows: rows, messages, actions, trajectories, records. Nothing here imports another room."""

from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation, Part
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Aside, EndReason, FrameRef, Trajectory, Turn

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
