"""External graders available to a reward."""

from dataclasses import dataclass

from agentic_video.graders.judge import Judge
from agentic_video.graders.verifier import Verifier
from agentic_video.video.source import FrameSource


@dataclass(frozen=True)
class Graders:
    """External graders available to a reward: a judge of texts, a verifier of frames, and the frames' source."""

    judge: Judge | None = None
    verifier: Verifier | None = None
    source: FrameSource | None = None
