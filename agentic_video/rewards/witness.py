"""A vision-language model that is shown frames and asked a question, behind any OpenAI-compatible endpoint."""

from collections.abc import Sequence
from typing import Protocol

from agentic_video.video.frames import Frame


class Witness(Protocol):
    """Looks at frames and says something about them."""

    async def ask(self, prompt: str, frames: Sequence[Frame]) -> str:
        """The model's reply to the frames, in order, and the prompt after them.

        Raises:
            JudgeError: No reply after all retries, or no endpoint is configured.
        """
