import asyncio
import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from agentic_video.datasets.rows import load_rows
from agentic_video.graders.base import Graders
from agentic_video.graders.judge import Judge, JudgeConfig, Scale
from agentic_video.graders.verifier import Verifier, VerifierConfig
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.videozoomer import oracle as videozoomer
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.toyworld.build.recipe import toy_recipe
from agentic_video.toyworld.oracles import asides_of, oracle, oracle_policy, own_words, turns_of
from agentic_video.toyworld.questions import build_world
from agentic_video.toyworld.scenes import SceneSource
from agentic_video.toyworld.world import COLOURS, MARK_COLOUR, TINTS, WorldRecipe, make_scene
from agentic_video.types.frame import Frame
from agentic_video.types.message import AsideRequest, Message
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason
from agentic_video.utils.errors import PluginTypeError
from agentic_video.video.source import FrameSource
from agentic_video.video.store import FrameStore
from tests.config.configs import SYSTEMS, composed
from tests.toyworld.conftest import laptop_setting


class _Watching(ScriptedPolicy):
    def __init__(self) -> None:
        super().__init__(oracle(videozoomer.turns))
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


def _play(system: System, qa: VideoQA, source: FrameSource) -> tuple[_Watching, float, bool]:
    policy = _Watching()
    trajectory = asyncio.run(play(system, policy, qa, source))
    score = asyncio.run(system.score(trajectory, qa, Graders()))
    assert score.format == 1.0 and trajectory.illegal_calls == 0
    return policy, score.acc, trajectory.end is EndReason.ANSWER


def test_oracle_solves_the_questions_and_zooms_onto_the_event(rows: list[VideoQA], recipe: WorldRecipe) -> None:
    system, source = laptop_setting("videozoomer").system, FrameStore()
    right = 0
    # A question that names no time is beyond VideoZoomer's tools, or must be searched (test_search.py).
    reachable = [qa for qa in rows if qa.extra["beside"] is None and qa.extra["kind"] != "search"]
    for qa in reachable:
        policy, acc, answered = _play(system, qa, source)
        right += bool(acc) and answered
        scene = make_scene(qa.extra["seed"], recipe)
        assert len(policy.overview) == 6
        assert bool(policy.zoomed) == (scene.event_time is not None)
        for flash in scene.flashes:
            colour = COLOURS[flash.figures[0].colour]
            enough = 0.06 if scene.kind == "count" else 0.2
            assert max(_share(frame, colour) for frame in policy.zoomed) > enough, scene
            assert max(_share(frame, colour) for frame in policy.overview) < 0.02, scene
        marked = [_share(frame, MARK_COLOUR) > 0.3 for frame in policy.overview]
        assert sum(marked) == (1 if scene.mark_time is not None else 0)
    assert right >= 0.95 * len(reachable)


@pytest.mark.slow
def test_oracle_of_longer_videos(tmp_path: Path, recipe: WorldRecipe) -> None:
    longer = replace(recipe, min_seconds=200, max_seconds=300)
    world = build_world(tmp_path, train=0, heldout=6, seed=1, recipe=longer)
    system, source = laptop_setting("videozoomer").system, FrameStore()
    for qa in load_rows([world.heldout])[0]:
        if qa.extra["beside"] is not None or qa.extra["kind"] == "search":
            continue
        policy, acc, _ = _play(system, qa, source)
        assert acc == 1.0
        scene = make_scene(qa.extra["seed"], longer)
        for flash in scene.flashes:
            assert max(_share(frame, COLOURS[flash.figures[0].colour]) for frame in policy.zoomed) > 0.06


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_oracle_solves_what_its_tools_can_reach(name: str, tmp_path: Path) -> None:
    setting = laptop_setting(name)
    toy = toy_recipe(composed(name, "laptop"))
    world = build_world(tmp_path, train=0, heldout=24, seed=2, recipe=toy.world)
    source = FrameStore()
    rows, problems = load_rows([world.heldout])
    assert not problems

    class Words(Judge):
        async def grade(self, question: str, reference: str, candidate: str, scale: Scale = "binary") -> float:
            return float(reference == candidate)

    class Sees(Verifier):
        async def ask(self, prompt: str, frames: Sequence[Frame]) -> str:
            colour = COLOURS.get(word) or TINTS[word]
            return letter if any(_share(frame, colour) > 0.15 for frame in frames) else ""

    graders = Graders(Words(JudgeConfig()), Sees(VerifierConfig()), source)
    solved = 0
    for qa in rows:
        word, letter = str(qa.extra["answer_text"]), qa.answer
        scene = make_scene(qa.extra["seed"], toy.world)
        retriever = SceneSource({qa.video: scene}, toy.world)
        trajectory = asyncio.run(play(setting.system, oracle_policy(setting.turns), qa, source, retriever))
        score = asyncio.run(setting.system.score(trajectory, qa, graders))
        assert trajectory.illegal_calls == 0 and score.format == 1.0, (trajectory.error, trajectory.turns)
        solved += score.acc > 0.9
    assert solved >= 0.95 * len(rows)


@dataclass(frozen=True)
class Sixth(VideoZoomer):
    name: str = "sixth"


def test_an_unknown_system_needs_an_oracle() -> None:
    with pytest.raises(ValueError, match=r"'sixth' has no oracle.*agentic_video\.toyworld\.oracle"):
        turns_of(Sixth())
    assert inspect.unwrap(turns_of(Sixth(), "agentic_video.systems.videozoomer.oracle")) is videozoomer.turns
    with pytest.raises(ValueError, match="no oracle"):
        turns_of(Sixth(), "agentic_video.systems.videozoomer.reward")  # a module, but it has no turns


@pytest.mark.parametrize(
    ("said", "got"),
    [('"<answer>B</answer>"', "str"), ("None", "NoneType"), ('("<answer>B</answer>", None)', "NoneType")],
)
def test_an_oracle_that_returns_no_texts_is_named(
    said: str, got: str, qa: VideoQA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text by itself would be taken for turns of a letter each."""
    (tmp_path / "careless_oracle.py").write_text(
        f"TAGS = ()\ndef turns(view, aim, word, letter, seen=''): return {said}\ndef asides(qa, request): return None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    turns = turns_of(Sixth(), "careless_oracle")
    own = own_words(Sixth(), "careless_oracle")
    asides = asides_of(turns)
    sys.modules.pop("careless_oracle")
    assert own is not None and asides is not None and turns.__module__ == own.turns.__module__ == "careless_oracle"
    view: EpisodeView = None  # type: ignore[assignment]
    for one in (turns, own.turns):
        with pytest.raises(PluginTypeError, match=rf"^careless_oracle\.turns must return texts in a tuple, got {got}$"):
            one(view, None, "red", "B")
    with pytest.raises(PluginTypeError, match=r"^careless_oracle\.asides must return a text, got NoneType$"):
        asides(qa, AsideRequest((), 1))


def test_an_oracle_may_return_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "listing_oracle.py").write_text("def turns(*said): return ['<answer>B</answer>']\n")
    monkeypatch.syspath_prepend(tmp_path)
    view: EpisodeView = None  # type: ignore[assignment]
    assert turns_of(Sixth(), "listing_oracle")(view, None, "red", "B") == ("<answer>B</answer>",)
    sys.modules.pop("listing_oracle")
