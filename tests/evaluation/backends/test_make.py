"""Engines by name and by dotted path."""

import re

import pytest

from agentic_video.evaluation.backends.chat import ChatBackend
from agentic_video.evaluation.backends.make import backend_class, make_backend
from agentic_video.evaluation.backends.vllm import VllmBackend
from agentic_video.evaluation.model import ModelSpec
from agentic_video.rollout.chat_policy import ChatConfig
from agentic_video.toyworld.backend import ToyBackend
from agentic_video.utils.errors import SetupError
from tests.evaluation.scripted import OracleBackend, named


def test_by_name_and_by_path() -> None:
    assert backend_class("chat") is ChatBackend and backend_class("vllm") is VllmBackend
    assert backend_class(named("OracleBackend")) is OracleBackend
    assert backend_class("agentic_video.toyworld.backend.ToyBackend") is ToyBackend
    assert [backend.one_token_frames for backend in (ChatBackend, VllmBackend, ToyBackend)] == [False, False, True]


def test_made_with_the_system_s_visual_tokens() -> None:
    assert make_backend(ModelSpec(named("OracleBackend"), "m"), 14).visual_token_side == 14
    chat = ModelSpec("chat", "http://h/v1", chat=ChatConfig(base_url="http://h/v1", model="m"))
    assert make_backend(chat, 32).visual_token_side == 32


@pytest.mark.parametrize(
    "engine",
    ["no.such.module", "agentic_video.evaluation.model.NoSuchClass", "nothing", ".", "os.path.join", "os.path.sep"],
)
def test_what_is_no_engine_is_named(engine: str) -> None:
    with pytest.raises(SetupError, match=re.escape(f"--engine {engine}: ")):
        backend_class(engine)
