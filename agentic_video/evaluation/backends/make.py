"""x"""

from agentic_video.evaluation.backends.base import Speaker
from agentic_video.evaluation.backends.chat import ChatSpeaker
from agentic_video.evaluation.backends.vllm import VllmSpeaker
from agentic_video.evaluation.model import ModelSpec
from agentic_video.toyworld.backend import ToySpeaker
from agentic_video.utils.journal import SetupError as SetupError


def make_speaker(spec: ModelSpec, factor: int) -> Speaker:
    """The speaker of a model.

    Args:
        factor: Pixels along each side of one visual token, where the model doesn't say (a server).
    """
    if spec.engine == "chat":
        return ChatSpeaker(spec, factor)
    return ToySpeaker(spec) if spec.engine == "toy" else VllmSpeaker(spec)
