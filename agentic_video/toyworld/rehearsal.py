"""The oracle of a system, aimed right, played before anything is taught: does its tool show what it asks for?

A cold start takes minutes, and its gate can't tell a tool that picks a wrong frame from a model that aims badly. The
oracle takes seconds.
"""

import asyncio
from dataclasses import dataclass

from agentic_video.rollout.episode import play
from agentic_video.systems.base import System
from agentic_video.toyworld.gate import GateError, Played
from agentic_video.toyworld.oracles import Turns, oracle_policy
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.recipe import ToyRecipe
from agentic_video.toyworld.scenes import SceneSource, path_of
from agentic_video.types.trajectory import frames_by

SCENES = 48
"""Questions that the oracle is asked; about six in seven have an event to look at."""
LEAST_SEEN = 0.5
"""Share of the episodes in which the event must be seen; all published systems have 1."""
NAMED_FRAMES = 4


@dataclass(frozen=True)
class Rehearsal:
    """Result of the oracle's episodes on questions that need a look.

    Attributes:
        episodes: Their number.
        saw_event: How many showed a frame of the event after a call.
        answered: How many ended with an answer.
        refused: Calls that the system refused.
        first_miss: What the first episode did that didn't show its event; empty where all did.
    """

    episodes: int
    saw_event: int
    answered: int
    refused: int
    first_miss: str

    @property
    def share(self) -> float:
        """Share of the episodes that showed the event; 1 where no question needs a look."""
        return self.saw_event / self.episodes if self.episodes else 1.0

    def __str__(self) -> str:
        return (
            f"the oracle, aimed right, saw the event in {self.saw_event} of {self.episodes} episodes "
            f"({self.answered} answered, {self.refused} calls refused){self.first_miss and f'; {self.first_miss}'}"
        )


def rehearse(system: System, turns: Turns, recipe: ToyRecipe) -> Rehearsal:
    """Play the oracle on scenes of the recipe's world, each looked at where its event is.

    Args:
        system: Whose tool carries the looks out.
        turns: The system's oracle.
        recipe: Its world and the world's seed.
    """
    shown = {path_of(scene): scene for scene in scenes("demonstrations", SCENES, recipe.seed, recipe.world)}
    source = SceneSource(shown, recipe.world)

    async def run() -> list[Played]:
        episodes = []
        for number, (path, scene) in enumerate(shown.items()):
            qa = row_of(scene, path, "demonstrations")
            if qa.extra["event_time"] is None:
                continue
            policy = oracle_policy(turns)
            trajectory = await play(system, policy, qa, source, source, rollout_index=number % 8)
            episodes.append(Played(qa, trajectory, reward=0.0, acc=0.0, well_formed=True))
        return episodes

    episodes = asyncio.run(run())
    missed = [episode for episode in episodes if not episode.saw_event]
    return Rehearsal(
        episodes=len(episodes),
        saw_event=len(episodes) - len(missed),
        answered=sum(episode.trajectory.answer is not None for episode in episodes),
        refused=sum(episode.trajectory.illegal_calls for episode in episodes),
        first_miss=_described(missed[0]) if missed else "",
    )


def _described(missed: Played) -> str:
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


def check_oracle(system: System, turns: Turns, recipe: ToyRecipe) -> Rehearsal:
    """Rehearse, and refuse a design that no cold start could bring through its gate.

    Raises:
        GateError: Looks that are aimed right mostly don't show the event; the message says what they showed.
    """
    found = rehearse(system, turns, recipe)
    if found.share < LEAST_SEEN and recipe.gate.saw_event:
        raise GateError(
            f"{system.name}: {found}. Its tool shows other frames than its oracle asks for, or its oracle asks for "
            "others: mend the one that is wrong. If right looks are meant to miss: "
            "++agentic_video.toyworld.gate.saw_event=0"
        )
    return found
