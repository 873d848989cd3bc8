"""The backend of a model, by the name or the dotted path of its engine."""

from importlib import import_module

from safetensors import SafetensorError

from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.model import ModelSpec
from agentic_video.utils.errors import SetupError, one_line

BACKENDS = {
    "chat": "agentic_video.evaluation.backends.chat.ChatBackend",
    "vllm": "agentic_video.evaluation.backends.vllm.VllmBackend",
    "vllm-server": "agentic_video.evaluation.backends.vllm_server.VllmServerBackend",
}
"""The engines that have a name."""
MAX_ERROR_CHARS = 400
"""Of why a model can't be loaded: libraries say it at length."""


def backend_class(engine: str) -> type[Backend]:
    """The class behind an engine; nothing is loaded but its module."""
    module, _, name = BACKENDS.get(engine, engine).rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SetupError(f"--engine {engine}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Backend)):
        raise SetupError(f"--engine {engine}: not a subclass of {Backend.__module__}.{Backend.__qualname__}")
    return found


def make_backend(spec: ModelSpec, visual_token_side: int) -> Backend:
    """The backend of a model; made where its event loop runs."""
    made = backend_class(spec.engine)
    try:
        return made(spec, visual_token_side)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        why = one_line(error) or type(error).__name__
        raise SetupError(f"{spec.model} can't be loaded with {made.__name__}: {why[:MAX_ERROR_CHARS]}") from error
