"""``clip_sample``: the frames of a stretch that match a text best (VideoBrain, section 3.1 and Algorithm 1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentic_video.tools.base import ToolError
from agentic_video.tools.uniform_sample import frames_within, spread
from agentic_video.types.text import is_unicode


@dataclass(frozen=True)
class ClipRequest:
    """A legal request: which frames to compare with which text.

    Attributes:
        prompt: What to look for, without surrounding white space.
        candidates: Frame numbers in order.
    """

    prompt: str
    candidates: tuple[int, ...]


def read_prompt(arguments: Mapping[str, Any]) -> str:
    """The text to look for, without surrounding white space.

    Raises:
        ToolError: It isn't a text, or an empty one, or one that no tokenizer could read.
    """
    prompt = arguments.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ToolError("prompt must be a text that isn't empty")
    if not is_unicode(prompt):
        raise ToolError("prompt must be valid text")
    return prompt.strip()


def check_clip(arguments: Mapping[str, Any], num_frames: int, *, candidates: int, max_prompt_chars: int) -> ClipRequest:
    """Check a request and choose the frames to compare.

    The candidates are spread over the asked range (paper: "from the specified interval"). A search of the whole video
    always has the same ones, so their embeddings are computed once.

    Args:
        arguments: ``start_frame``, ``end_frame`` and ``prompt``.
        num_frames: Frames in the video.
        candidates: How many to compare; a shorter range gives all of its frames.
        max_prompt_chars: A longer prompt is refused.

    Raises:
        ToolError: The request is illegal; the message says why.
    """
    frames = frames_within(arguments, num_frames)
    prompt = read_prompt(arguments)
    if len(prompt) > max_prompt_chars:
        raise ToolError(f"prompt must have at most {max_prompt_chars} characters")
    return ClipRequest(prompt, tuple(spread(frames, candidates)))
