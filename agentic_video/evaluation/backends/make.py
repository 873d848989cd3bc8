"""x"""

from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.backends.chat import ChatBackend
from agentic_video.evaluation.backends.vllm import VllmBackend
from agentic_video.evaluation.model import ModelSpec
from agentic_video.toyworld.backend import ToyBackend


def make_backend(spec: ModelSpec, factor: int) -> Backend:
    """The backend of a model.

    Args:
        factor: Pixels along each side of one visual token, where the model doesn't say (a server).
    """
    if spec.engine == "chat":
        return ChatBackend(spec, factor)
    return ToyBackend(spec) if spec.engine == "toy" else VllmBackend(spec)
