"""Variables of the chat template reach every engine of evaluation and of teachers."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from agentic_video.config.settings import limits_of, settings_of
from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.backends.chat import ChatBackend
from agentic_video.evaluation.backends.vllm_server import VllmServerBackend
from agentic_video.evaluation.context import EvalContext
from agentic_video.evaluation.model import ModelOptions, model_spec
from agentic_video.evaluation.plan import EvalPlan
from agentic_video.toyworld.backend import ToyBackend
from agentic_video.utils.errors import SetupError
from tests.config.configs import composed
from tests.evaluation.conftest import checkpoint, tokenizer
from tests.rollout.chat_templates import template

__all__ = ["checkpoint", "tokenizer"]

KEY = "+data.apply_chat_template_kwargs"


@pytest.fixture(scope="module")
def thinking(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint whose template opens a thought unless ``enable_thinking`` is false."""
    folder = shutil.copytree(checkpoint, tmp_path_factory.mktemp("thinking") / "model")
    (folder / "chat_template.jinja").write_text(template())
    return str(folder)


def backend(engine: str, model: str, *overrides: str) -> Backend:
    address = engine != "toy"
    options = ModelOptions("http://h/v1" if address else model, engine, "name", processor=model if address else "")
    made: dict[str, Any] = {"toy": ToyBackend, "chat": ChatBackend, "vllm-server": VllmServerBackend}
    return made[engine](model_spec(options, composed("videozoomer", "laptop", *overrides)), 28)


def start_of(made: Any) -> str:
    return made._reply_start if isinstance(made, ChatBackend) else made._format.reply_start


@pytest.mark.parametrize("engine", ["toy", "chat", "vllm-server"])
def test_engines_render_with_the_run_s_variables(engine: str, thinking: str) -> None:
    assert start_of(backend(engine, thinking)) == "<think>\n"
    assert start_of(backend(engine, thinking, f"{KEY}.enable_thinking=false")) == ""
    with pytest.raises(SetupError, match="reasoning_effort"):
        backend(engine, thinking, f"{KEY}.reasoning_effort=low")


def test_a_template_without_tool_messages_is_refused_once(checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(template(tool=False))
    made = backend("toy", str(folder))
    config = composed("timesearch", "laptop", "agentic_video.system.observation_role=tool")
    plan = EvalPlan(tmp_path, settings_of(config), made._spec, limits_of(config), 1)  # type: ignore[attr-defined]
    with pytest.raises(SetupError, match=r"agentic_video\.system\.observation_role"):
        EvalContext(plan, made)


def test_a_chat_server_is_told_the_variables() -> None:
    options = ModelOptions("http://h/v1", "chat", "name", top_p=1.0)
    spec = model_spec(options, composed("videozoomer", "laptop", f"{KEY}.enable_thinking=false"))
    assert spec.chat.fields == {"chat_template_kwargs": {"enable_thinking": False}}
