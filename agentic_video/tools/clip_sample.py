"""``clip_sample``: the frames of a stretch that match a text best (VideoBrain, section 3.1 and Algorithm 1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentic_video.tools.base import ToolError
from agentic_video.tools.uniform_sample import frames_within, spread
from agentic_video.types.text import is_unicode


@dataclass(frozen=True)
class SearchRequest:
    """A legal request: a text and the numbers of the frames to compare with it."""

    prompt: str
    candidates: tuple[int, ...]


def read_prompt(arguments: Mapping[str, Any]) -> str:
    """The text to look for, without surrounding white space."""
    prompt = arguments.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ToolError("prompt must be a text that isn't empty")
    if not is_unicode(prompt):
        raise ToolError("prompt must be valid text")
    return prompt.strip()


def check_clip(
    arguments: Mapping[str, Any], num_frames: int, *, candidates: int, max_prompt_chars: int
) -> SearchRequest:
    """Check a request and spread at most ``candidates`` frames over its range (paper: "from the specified interval").

    A search of the whole video always has the same candidates, so their embeddings are computed once.
    """
    frames = frames_within(arguments, num_frames)
    prompt = read_prompt(arguments)
    if len(prompt) > max_prompt_chars:
        raise ToolError(f"prompt must have at most {max_prompt_chars} characters")
    return SearchRequest(prompt, tuple(spread(frames, candidates)))
