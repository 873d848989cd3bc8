"""FrameMind's oracle: its texts, and what it finds in encoded videos."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentic_video.datasets.rows import load_rows
from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.framemind import oracle
from agentic_video.tools.base import Video
from agentic_video.toyworld.questions import build_world
from agentic_video.toyworld.world import EVENT_SECONDS, WorldRecipe
from agentic_video.types.row import VideoQA
from agentic_video.video.store import FrameStore
from tests.conftest import MemorySource
from tests.systems.framemind.texts import SMALL, at, clip, times


@pytest.fixture(scope="module")
def world_rows(tmp_path_factory: pytest.TempPathFactory) -> Sequence[VideoQA]:
    recipe = WorldRecipe(mixture=(("colour", 0.8), ("overview", 0.2)))
    world = build_world(tmp_path_factory.mktemp("world"), train=0, heldout=12, seed=11, recipe=recipe)
    return load_rows([world.heldout])[0]


def test_oracle_solves_the_world(world_rows: Sequence[VideoQA]) -> None:
    store, named = FrameStore(), replace(SMALL, answer_match="robust")
    kinds = set()
    for number, qa in enumerate(world_rows):
        aim = qa.extra["event_time"]
        view = EpisodeView(qa, asyncio.run(Video.open(qa.video, store)))
        said = oracle.turns(view, aim, qa.extra["answer_text"], qa.answer)
        policy = ScriptedPolicy(lambda view, said=said: said[len(view.turns)])
        trajectory = asyncio.run(play(named, policy, qa, store, rollout_index=number % 8))
        score = asyncio.run(named.score(trajectory, qa, Graders()))
        assert (score.acc, score.format, trajectory.illegal_calls) == (1.0, 1.0, 0)
        if aim is None:
            assert score.reward == 1.0
            continue
        both = int(aim) % 2
        kinds.add(both)
        assert score.reward == pytest.approx(2.7 if both else 2.5)
        seen = [abs(time - aim) < EVENT_SECONDS / 2 for time in times(trajectory, 0)]
        assert sum(seen) >= (2 if both else 1)
    assert kinds == {0, 1}


def test_it_looks_with_one_tool_at_even_seconds_and_with_both_at_odd_ones(qa: VideoQA, source: MemorySource) -> None:
    view = EpisodeView(qa, Video("memory", source.info, source))
    reply = "<think>it is green</think><answer>green</answer>"
    even, odd = (
        "<think>look near 42</think>" + at(42) + "<turn_sum>look 42</turn_sum>",
        "<think>look near 43</think>" + at(43) + clip(42, 44) + "<turn_sum>look 43</turn_sum>",
    )
    assert oracle.turns(view, 42.4, "green", "B") == (even, reply)
    assert oracle.turns(view, 43.0, "green", "B") == (odd, reply)
    assert oracle.turns(view, None, "green", "B") == (reply,)
