"""A rehearsal: the oracle, aimed right, is played before any training. Does its tool show what it asks for?

A cold start takes minutes, and its gate can't tell a tool that picks a wrong frame from a model that aims badly."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentic_video.rollout.episode import play
from agentic_video.systems.base import System
from agentic_video.toyworld.build.gate import GateError, SampledEpisode
from agentic_video.toyworld.build.recipe import ToyRecipe
from agentic_video.toyworld.oracles import Turns, oracle_policy
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.scenes import SceneSource, path_of
from agentic_video.types.trajectory import RecordedPart, frames_by, recorded_frames

DIGESTED_SCENES = 16
"""Questions whose episodes tell one system and oracle from another."""
SCENES = 48
"""Questions of a rehearsal; about six in seven have an event."""
LEAST_SEEN = 0.5
"""Least share of episodes in which the event is seen; all published systems have 1."""
NAMED_FRAMES = 4


@dataclass(frozen=True)
class OracleCheck:
    """Result of the oracle's episodes on questions that need a look.

    Attributes:
        saw_event: Episodes that showed a frame of the event after a call.
        first_miss: Account of the first episode without its event; empty if all showed it.
    """

    episodes: int
    saw_event: int
    answered: int
    refused: int
    first_miss: str

    @property
    def share(self) -> float:
        """Share of episodes that showed the event; 1 if no question needs a look."""
        return self.saw_event / self.episodes if self.episodes else 1.0

    def __str__(self) -> str:
        return (
            f"the oracle, aimed right, saw the event in {self.saw_event} of {self.episodes} episodes "
            f"({self.answered} answered, {self.refused} calls refused){self.first_miss and f'; {self.first_miss}'}"
        )


def rehearse(system: System, turns: Turns, recipe: ToyRecipe) -> OracleCheck:
    """Play the oracle on scenes of the recipe's world, each looked at where its event is."""
    episodes = [episode for episode in _play(system, turns, recipe, SCENES) if episode.needs_zoom]
    missed = [episode for episode in episodes if not episode.saw_event]
    return OracleCheck(
        episodes=len(episodes),
        saw_event=len(episodes) - len(missed),
        answered=sum(episode.trajectory.answer is not None for episode in episodes),
        refused=sum(episode.trajectory.illegal_calls for episode in episodes),
        first_miss=_described(missed[0]) if missed else "",
    )


def _play(system: System, turns: Turns, recipe: ToyRecipe, count: int) -> list[SampledEpisode]:
    shown = {path_of(scene): scene for scene in scenes("demonstrations", count, recipe.seed, recipe.world)}
    source = SceneSource(shown, recipe.world)

    async def run() -> list[SampledEpisode]:
        episodes = []
        for number, (path, scene) in enumerate(shown.items()):
            qa = row_of(scene, path, "demonstrations")
            trajectory = await play(system, oracle_policy(turns), qa, source, source, rollout_index=number % 8)
            episodes.append(SampledEpisode(qa, trajectory, reward=0.0, acc=0.0, well_formed=True))
        return episodes

    return asyncio.run(run())


def episodes_digest(system: System, turns: Turns, recipe: ToyRecipe) -> str:
    """Digest of all that the oracle's first episodes show and say; another system or oracle has another."""

    def plain(parts: Sequence[RecordedPart]) -> list[Any]:
        frames = [[(frame.time, frame.width, frame.height) for frame in recorded_frames([part])] for part in parts]
        return [shown or part for shown, part in zip(frames, parts, strict=True)]

    episodes = []
    for episode in _play(system, turns, recipe, DIGESTED_SCENES):
        trajectory = episode.trajectory
        said = [[turn.text, plain(turn.observation)] for turn in trajectory.turns]
        asides = [[[plain(message.parts) for message in aside.messages], aside.text] for aside in trajectory.all_asides]
        opening = [[message.role, plain(message.parts)] for message in trajectory.opening]
        episodes.append([opening, said, asides, episode.qa.answer])
    return hashlib.sha256(json.dumps(episodes).encode()).hexdigest()[:16]


def _described(missed: SampledEpisode) -> str:
    """Describe the frames that an episode should have shown, and those it did."""
    trajectory = missed.trajectory
    times = sorted({frame.time for turn in trajectory.turns for frame in frames_by(turn)})
    named = ", ".join(f"{time:g}" for time in times[:NAMED_FRAMES]) + (", ..." if len(times) > NAMED_FRAMES else "")
    looked = f"its calls showed {named} s" if times else "its calls showed no frame"
    error = f", {trajectory.error}" if trajectory.error else ""
    return (
        f"an event at {missed.qa.extra['event_time']:g} s was missed: {looked}, and the episode ended with "
        f"{trajectory.end}{error}"
    )


def check_oracle(system: System, turns: Turns, recipe: ToyRecipe) -> OracleCheck:
    """Rehearse, and refuse a design that can't pass the gate."""
    found = rehearse(system, turns, recipe)
    if found.share < LEAST_SEEN and recipe.gate.saw_event:
        raise GateError(
            f"{system.name}: {found}. Its tool shows other frames than its oracle asks for, or its oracle asks for "
            "others: mend either. If right looks are meant to miss: "
            "++agentic_video.toyworld.gate.saw_event=0"
        )
    return found
