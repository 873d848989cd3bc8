"""Completeness self-verification (section 3.3.2): can a verifier answer from what the agent retrieved last?"""

from agentic_video.graders.answer import MatchRule, match_choice
from agentic_video.graders.base import Graders
from agentic_video.graders.verifier import VerifierError
from agentic_video.systems.blocks import answer_or_all
from agentic_video.types.frame import Frame
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import FrameRef, Trajectory, recorded_frames, runs_of_size
from agentic_video.video.errors import VideoError
from agentic_video.video.source import FrameRequest


def last_retrieval(trajectory: Trajectory) -> tuple[FrameRef, ...]:
    """The frames of the last observation that shows any; empty when nothing was retrieved."""
    for turn in reversed(trajectory.turns):
        if refs := recorded_frames(turn.observation):
            return refs
    return ()


async def verify_choice(trajectory: Trajectory, qa: VideoQA, prompt: str, graders: Graders, rule: MatchRule) -> float:
    """Completeness self-verification: 1.0 if a verifier answers right from the frames of the last retrieval alone.

    0.0 without asking where nothing was retrieved; VerifierError where there is no verifier, reply or frame.
    """
    refs = last_retrieval(trajectory)
    if not refs:
        return 0.0
    if graders.verifier is None or graders.source is None:
        raise VerifierError(f"row {qa.id}: self-verification needs a verifier and a source of frames")
    frames: list[Frame] = []
    try:
        for size, indices in runs_of_size(refs):
            frames += (await graders.source.serve(FrameRequest(qa.video, indices, size=size))).frames
    except VideoError as error:
        raise VerifierError(f"row {qa.id}: no frames for the verifier: {error}") from error
    reply = await graders.verifier.ask(prompt, frames)
    return float(match_choice(answer_or_all(reply), qa, rule))
