"""Episodes of which every turn is written beforehand, played as an engine would play them."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentic_video.rollout.episode import play
from agentic_video.rollout.replay import ScriptEngine, written_ids
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy, TokenSequence
from agentic_video.systems.base import System
from agentic_video.tools.base import Retriever
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory
from agentic_video.video.source import FrameSource


@dataclass(frozen=True)
class ScriptedEpisode:
    """A played script.

    Attributes:
        trajectory: The episode; it ends with an answer.
        sequences: Its token ids, one sequence for each that an engine would see.
    """

    trajectory: Trajectory
    sequences: tuple[TokenSequence, ...]


async def play_script(
    turns: Sequence[str],
    qa: VideoQA,
    system: System,
    limits: TokenLimits,
    chat_format: ChatFormat,
    source: FrameSource,
    retriever: Retriever,
    *,
    rollout_index: int = 0,
) -> ScriptedEpisode:
    """Play written turns through the same episode code as rollouts.

    Args:
        turns: The texts of all turns; the last one answers.
        chat_format: Of the model whose tokens are wanted.
        source: Frames of the video.
        retriever: Finds frames by text.
        rollout_index: Number within a group, for systems that show each rollout something else.

    Raises:
        RuntimeError: The episode didn't end with an answer.
    """
    engine = ScriptEngine([written_ids(text, chat_format, system.stop) for text in turns])
    policy = TokenPolicy(engine, chat_format, limits, system)
    trajectory = await play(system, policy, qa, source, retriever, rollout_index=rollout_index)
    if trajectory.answer is None:
        raise RuntimeError(
            f"a scripted episode of {system.name} ended with {trajectory.end}: {trajectory.error or turns}"
        )
    return ScriptedEpisode(trajectory, tuple(policy.sequences))
