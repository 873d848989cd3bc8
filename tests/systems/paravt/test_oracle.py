"""ParaVT's oracle: its texts, what its sub-agents say, and what it finds in encoded videos."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentic_video.datasets.rows import load_rows
from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.paravt import oracle
from agentic_video.tools.base import Video
from agentic_video.toyworld.oracles import oracle_policy
from agentic_video.toyworld.questions import build_world
from agentic_video.toyworld.world import WorldRecipe
from agentic_video.types.message import AsideRequest, Message
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import recorded_frames
from agentic_video.video.store import FrameStore
from tests.conftest import MemorySource
from tests.systems.paravt.texts import SMALL, crop

CLOSE = replace(SMALL, crop_fps=4.0)


@pytest.fixture(scope="module")
def world_rows(tmp_path_factory: pytest.TempPathFactory) -> Sequence[VideoQA]:
    recipe = WorldRecipe(mixture=(("colour", 0.8), ("overview", 0.2)))
    world = build_world(tmp_path_factory.mktemp("world"), train=0, heldout=12, seed=11, recipe=recipe)
    return load_rows([world.heldout])[0]


def test_oracle_solves_the_world(world_rows: Sequence[VideoQA]) -> None:
    store = FrameStore()
    parallel = set()
    for qa in world_rows:
        aim = qa.extra["event_time"]
        trajectory = asyncio.run(play(CLOSE, oracle_policy(oracle.turns), qa, store))
        score = asyncio.run(CLOSE.score(trajectory, qa, Graders()))
        assert (score.acc, score.format, trajectory.illegal_calls) == (1.0, 1.0, 0)
        if aim is None:
            assert trajectory.tool_calls == 0 and score.reward == pytest.approx(2.0)
            continue
        assert score.reward == pytest.approx(2.6)
        first, *others = trajectory.turns[0].asides
        assert first.text == f"it is {qa.extra['answer_text']}"
        assert {aside.text for aside in others} <= {oracle.NOTHING}
        assert len(others) == int(aim) % 2
        parallel.add(len(others))
        # the agent itself has seen no frame of the event
        assert recorded_frames(trajectory.turns[0].observation) == ()
    assert parallel == {0, 1}


def test_it_asks_for_one_stretch_at_even_seconds_and_for_two_at_odd_ones(qa: VideoQA, source: MemorySource) -> None:
    view = EpisodeView(qa, Video("memory", source.info, source))
    reply = "look, it is green</think><answer>green</answer>"
    assert oracle.turns(view, 42.4, "green", "B") == (f"look near 42</think>{crop(42, 43)}", reply)
    assert oracle.turns(view, 43.0, "green", "B") == (f"look near 43</think>{crop(43, 44)}{crop(45, 46)}", reply)
    assert oracle.turns(view, None, "green", "B") == (reply,)
    assert oracle.turns(view, 43.0, "green", "B", seen="later")[0] == f"later43</think>{crop(43, 44)}"


@pytest.mark.parametrize(
    ("extra", "times", "said"),
    [
        ({"kind": "colour"}, [41.0, 42.0, 43.0], "it is green"),
        ({"kind": "colour"}, [41.0, 43.0], "nothing flashes"),
        ({"kind": "overview", "event_time": None}, [42.0], "nothing flashes"),
        ({"kind": "search"}, [10.0, 11.0], "later"),
        ({"kind": "search"}, [50.0, 51.0], "earlier"),
        ({"kind": "search"}, [41.0, 42.0], "it is green"),
    ],
)
def test_a_sub_agent_says_what_it_is_shown(
    extra: dict[str, object], times: list[float], said: str, qa: VideoQA, source: MemorySource
) -> None:
    facts = {"event_time": 42.2, "event_seconds": 0.9, "answer_text": "green", **extra}
    frames = source.draw("memory", source.indices_at("memory", times), None)
    request = AsideRequest((Message("user", (*frames, "\nWhat flashes?")),), max_tokens=8)
    assert oracle.asides(replace(qa, extra=facts), request) == said


def test_rows_of_other_worlds_have_nothing_to_tell(qa: VideoQA, source: MemorySource) -> None:
    request = AsideRequest((Message("user", ("What?",)),), max_tokens=8)
    assert oracle.asides(qa, request) == oracle.NOTHING
