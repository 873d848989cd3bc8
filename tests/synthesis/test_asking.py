import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentic_video.graders.endpoint import Endpoint
from agentic_video.rollout.chat_policy import Usage
from agentic_video.synthesis.asking import (
    MAX_TURN_CHARS,
    ask,
    chat_config,
    transcript,
)
from agentic_video.synthesis.jobs import JobOptions
from agentic_video.types.action import Answer
from agentic_video.types.trajectory import FrameRef, Turn
from tests.faulty_server import Reply, Serve


def test_turns_are_told_with_their_frames_by_name_and_cut() -> None:
    shown = ("frames: ", FrameRef(3, 0.3, 56, 28), "end")
    turns = [Turn("x" * (MAX_TURN_CHARS + 1), Answer("A"), 5, observation=shown), Turn("y", Answer("B"), 5)]
    assert transcript(turns) == [
        {"turn": 1, "said": "x" * MAX_TURN_CHARS, "was_shown": "frames: <frame 3 at 0.30 s>end"},
        {"turn": 2, "said": "y", "was_shown": ""},
    ]


def test_a_question_goes_to_a_server_and_its_tokens_are_counted(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def says(body: dict[str, Any], request: int) -> Reply:
        return Reply("<think>hm</think> four ")

    server = serve(says)
    config = chat_config(JobOptions(out=Path("out")), server.url, "m", "--judge", "--judge-name", max_tokens=7)
    said, usage = asyncio.run(ask(Endpoint(config, "judge"), [{"role": "user", "content": "2 + 2?"}], str.upper))
    assert said == "FOUR" and usage.requests == 1 and isinstance(usage, Usage)
    assert (server.bodies[0]["model"], server.bodies[0]["max_tokens"]) == ("m", 7)
