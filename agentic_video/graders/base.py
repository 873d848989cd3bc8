"""Whom a reward may ask."""

from dataclasses import dataclass

from agentic_video.graders.judge import Judge
from agentic_video.graders.verifier import Verifier
from agentic_video.video.source import FrameSource


@dataclass(frozen=True)
class Graders:
    """Whom a reward may ask, beside the trajectory itself.

    Attributes:
        judge: Grades an answer by its text.
        verifier: A vision-language model that is shown frames and asked.
        source: Frames by reference, for the verifier.
    """

    judge: Judge | None = None
    verifier: Verifier | None = None
    source: FrameSource | None = None
