import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from agentic_video.data.schema import VideoQA
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.rollout.trajectory import EndReason
from agentic_video.systems.base import EpisodeView, Graders, Message
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.toyworld import oracle
from agentic_video.toyworld.gate import read_rows
from agentic_video.toyworld.laptop import laptop_system
from agentic_video.toyworld.questions import build_world
from agentic_video.toyworld.world import COLOURS, MARK_COLOUR, WorldRecipe, make_scene
from agentic_video.video.frames import Frame
from agentic_video.video.store import FrameSource, FrameStore


class _Watching(ScriptedPolicy):
    """The oracle, keeping the frames that it is shown."""

    def __init__(self) -> None:
        super().__init__(oracle.videozoomer)
        self.overview: list[Frame] = []
        self.zoomed: list[Frame] = []

    async def begin(self, messages: Sequence[Message]) -> bool:
        self.overview = [part for message in messages for part in message.parts if isinstance(part, Frame)]
        return True

    async def show(self, parts: Sequence[str | Frame]) -> bool:
        self.zoomed += [part for part in parts if isinstance(part, Frame)]
        return True


def _share(frame: Frame, colour: tuple[int, int, int]) -> float:
    """Share of a frame's pixels that have a colour, encoding and resizing allowed for."""
    return float((np.abs(frame.image.astype(int) - colour).max(-1) < 45).mean())


def _play(system: VideoZoomer, qa: VideoQA, source: FrameSource) -> tuple[_Watching, float, bool]:
    policy = _Watching()
    trajectory = asyncio.run(play(system, policy, qa, source))
    score = asyncio.run(system.score(trajectory, qa, Graders()))
    assert score.format == 1.0 and trajectory.illegal_calls == 0
    return policy, score.acc, trajectory.end is EndReason.ANSWER


def test_oracle_solves_the_questions_and_zooms_onto_the_event(rows: list[VideoQA], recipe: WorldRecipe) -> None:
    system, source = laptop_system(recipe.overview_frames), FrameStore()
    right = 0
    for qa in rows:
        policy, acc, answered = _play(system, qa, source)
        right += bool(acc) and answered
        scene = make_scene(qa.extra["seed"], recipe)
        assert len(policy.overview) == recipe.overview_frames
        assert bool(policy.zoomed) == (scene.event_time is not None)
        for flash in scene.flashes:
            colour = COLOURS[flash.figures[0].colour]
            enough = 0.06 if scene.kind == "count" else 0.2
            assert max(_share(frame, colour) for frame in policy.zoomed) > enough, scene
            assert max(_share(frame, colour) for frame in policy.overview) < 0.02, scene
        marked = [_share(frame, MARK_COLOUR) > 0.3 for frame in policy.overview]
        assert sum(marked) == (1 if scene.mark_time is not None else 0)
    assert right >= 0.95 * len(rows)


def test_oracle_of_longer_videos(tmp_path: Path, recipe: WorldRecipe) -> None:
    longer = replace(recipe, min_seconds=200, max_seconds=300)
    world = build_world(tmp_path, train=0, heldout=6, seed=1, recipe=longer)
    system, source = laptop_system(recipe.overview_frames), FrameStore()
    for qa in read_rows(world.heldout):
        policy, acc, _ = _play(system, qa, source)
        assert acc == 1.0
        scene = make_scene(qa.extra["seed"], longer)
        for flash in scene.flashes:
            assert max(_share(frame, COLOURS[flash.figures[0].colour]) for frame in policy.zoomed) > 0.06


def test_script_repeats_its_last_turn(rows: list[VideoQA]) -> None:
    script = oracle.Script(("one", "two"))
    view = EpisodeView(qa=rows[0], video=None)  # type: ignore[arg-type]
    assert script(view) == "one"
