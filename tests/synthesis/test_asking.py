import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.graders.endpoint import Endpoint
from agentic_video.rollout.chat_policy import Usage
from agentic_video.synthesis.asking import (
    MAX_TURN_CHARS,
    ServerOptions,
    ask,
    chat_config,
    read_array,
    read_object,
    spoken,
    transcript,
)
from agentic_video.types.action import Answer
from agentic_video.types.trajectory import FrameRef, Turn
from agentic_video.utils.errors import SetupError
from tests.faulty_server import Reply
from tests.synthesis.conftest import Serve


def test_only_a_whole_value_is_read() -> None:
    assert read_object('{"a": 1}') == {"a": 1} and read_object(' ```json\n{"a": 1}\n``` ') == {"a": 1}
    assert read_array("[1]") == [1] and read_array("```\n[1]\n```") == [1]
    for bad in ("", "[1]", "see: {}", "{} bye", "{", '{"a": 1} {"b": 2}'):
        assert read_object(bad) is None
    for bad in ("", "{}", "see: [1]", "[1] bye", "[" * 10_000):
        assert read_array(bad) is None


@given(st.text() | st.recursive(st.none() | st.integers(), lambda one: st.lists(one)).map(json.dumps))
def test_no_reply_breaks_the_readers(reply: str) -> None:
    assert read_object(reply) is None or isinstance(read_object(reply), dict)
    assert read_array(reply) is None or isinstance(read_array(reply), list)


def test_thoughts_are_left_out() -> None:
    assert spoken("<think>yes</think>\n no ") == "no" and spoken(" no") == "no"


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
    config = chat_config(ServerOptions(server.url, "m", max_tokens=7), "--judge", "--judge-name")
    said, usage = asyncio.run(ask(Endpoint(config, "judge"), [{"role": "user", "content": "2 + 2?"}], str.upper))
    assert said == "FOUR" and usage.requests == 1 and isinstance(usage, Usage)
    assert (server.bodies[0]["model"], server.bodies[0]["max_tokens"]) == ("m", 7)


def test_a_server_that_is_gone_is_said_with_its_option() -> None:
    for name in ("", "named"):
        with pytest.raises(SetupError, match=r"--judge http://127\.0\.0\.1:1/v1: no server answers there"):
            chat_config(ServerOptions("http://127.0.0.1:1/v1", name), "--judge", "--judge-name")
