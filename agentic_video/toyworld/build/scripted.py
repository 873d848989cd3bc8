"""Scripted episodes: every turn is written beforehand and played as an engine would play it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import EngineError
from agentic_video.rollout.replay import ScriptEngine, written_ids
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy, TokenSequence
from agentic_video.systems.base import System
from agentic_video.tools.base import Retriever
from agentic_video.toyworld.oracles import Asides, Turns, asides_of
from agentic_video.types.message import AsideRequest, visuals_of
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Aside, Trajectory
from agentic_video.video.source import FrameSource


@dataclass(frozen=True)
class Setting:
    """A system as the tiny model is taught and gated: its token budgets and its oracle.

    Attributes:
        clip: Folder of the tiny CLIP, for systems that find frames by text.
        base: Checkpoint of the base model that serves as the verifier.
    """

    system: System
    limits: TokenLimits
    turns: Turns
    clip: Path | None = None
    base: Path | None = None


@dataclass(frozen=True)
class ScriptedEpisode:
    """A played script: its trajectory, and the token ids of each sequence that an engine would see."""

    trajectory: Trajectory
    sequences: tuple[TokenSequence, ...]
    aside_sequences: tuple[TokenSequence, ...] = ()


class ScriptedTokens(TokenPolicy):
    """A token policy with written turns and side queries."""

    def __init__(
        self,
        turns: Sequence[Sequence[int]],
        chat_format: ChatFormat,
        limits: TokenLimits,
        system: System,
        qa: VideoQA,
        asides: Asides | None,
    ):
        super().__init__(ScriptEngine(turns), chat_format, limits, system)
        self._written = chat_format, limits, system
        self._qa, self._asides = qa, asides

    async def ask(self, request: AsideRequest) -> Aside:
        """Answer a side query; its sequence is kept whether it is trained on or not."""
        if self._asides is None:
            raise EngineError("the oracle answers no side queries: add a function 'asides'")
        chat_format, limits, system = self._written
        said = written_ids(self._asides(self._qa, request), chat_format, request.stop)
        beside = TokenPolicy(ScriptEngine([said]), chat_format, limits, system)
        aside = await beside.ask(request)
        visuals = [part for message in request.messages for part in visuals_of(message.parts)]
        asked = chat_format.opening_ids(request.messages) + chat_format.prefix_ids(request.prefix)
        sequence = TokenSequence(asked, visuals)
        sequence.append_generated(list(aside.token_ids), None)
        self.aside_sequences.append(sequence)
        return aside


async def play_script(
    turns: Sequence[str],
    qa: VideoQA,
    setting: Setting,
    chat_format: ChatFormat,
    source: FrameSource,
    retriever: Retriever,
    *,
    rollout_index: int = 0,
) -> ScriptedEpisode:
    """Play written turns, the last of which answers, through the rollouts' episode code; else RuntimeError.

    Args:
        rollout_index: Number within a group, for systems that show each rollout something else.
    """
    system = setting.system
    ends = chat_format.turn_ends(len(turns), system.observation_role)
    written = [written_ids(text, chat_format, system.stop, end) for text, end in zip(turns, ends, strict=True)]
    policy = ScriptedTokens(written, chat_format, setting.limits, system, qa, asides_of(setting.turns))
    trajectory = await play(system, policy, qa, source, retriever, rollout_index=rollout_index)
    if trajectory.answer is None:
        raise RuntimeError(
            f"a scripted episode of {system.name} ended with {trajectory.end}: {trajectory.error or turns}"
        )
    return ScriptedEpisode(trajectory, tuple(policy.sequences), tuple(policy.aside_sequences))
