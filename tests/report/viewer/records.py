"""Records of episodes for the viewer's tests."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.record import Record, write_record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, RecordedMessage, Trajectory, Turn


def frame(index: int) -> FrameRef:
    """Of a video of 25 frames a second."""
    return FrameRef(index, index / 25, 56, 28)


def record(
    video: str = "v.mp4",
    *,
    id: str = "q1",
    rollout: int = 0,
    reward: float | None = 1.0,
    acc: float = 1.0,
    thought: str = "look near 1",
    question: str = "What colour flashes?",
    provenance: dict[str, Any] | None = None,
) -> Record:
    """An episode of two turns: one call that showed two frames, and the answer B."""
    qa = VideoQA(id, video, question, "B", options=("red", "blue"), data_source="test")
    opening = (
        RecordedMessage("user", ("Watch.", "<0.00s>", frame(0), "<1.00s>", frame(25), "\nWhat colour flashes?")),
    )
    turns = (
        Turn(
            thought,
            Calls((ToolCall("video_zoom", {"segment": [1, 2], "fps": 2}),)),
            num_tokens=3,
            observation=("<tool>", frame(30), frame(40), "</tool>"),
            legal_calls=1,
            token_ids=(11, 12, 13),
        ),
        Turn("<answer>B</answer>", Answer("B"), num_tokens=2, token_ids=(14, 15)),
    )
    trajectory = Trajectory(id, "videozoomer", opening, turns, EndReason.ANSWER, rollout_index=rollout, num_tokens=99)
    rewards = {} if reward is None else {"reward": reward, "acc": acc, "term_acc": reward + 0.2, "term_turns": -0.2}
    return Record(qa, trajectory, rewards, provenance or {})


def illegal(reason: str, **fields: Any) -> Record:
    """An episode that an illegal turn ended."""
    good = record(**fields)
    turns = (Turn(reason, Illegal(reason), num_tokens=1, illegal_calls=1),)
    return replace(good, trajectory=replace(good.trajectory, turns=turns, end=EndReason.ILLEGAL, error=reason))


def write(path: Path, *records: Record) -> Path:
    """A file of records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for one in records:
            write_record(file, one)
    return path


def write_old(path: Path, *records: Record) -> Path:
    """A file as the trainer wrote it before records had a version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = ("video_qa", "trajectory", "reward_extra_info")
    lines = [json.dumps({key: one.to_dict()[key] for key in keys}) + "\n" for one in records]
    path.write_text("".join(lines), encoding="utf-8")
    return path
