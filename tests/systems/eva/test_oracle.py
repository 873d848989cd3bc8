"""EVA's oracle: its texts, and what it finds in encoded videos."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.eva import oracle
from agentic_video.tools.base import Video
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.world import COLOURS, WorldRecipe, make_scene, write_video
from agentic_video.types.frame import Frame
from agentic_video.types.row import VideoQA
from agentic_video.video.store import FrameStore
from tests.conftest import MemorySource
from tests.systems.eva.texts import SMALL

LAPTOP = replace(SMALL, max_tokens=6, max_frames=6, max_turns=3, max_images=24, prompt="eva_short", reminder="")


class Watching(ScriptedPolicy):
    """The oracle, keeping the frames that it is shown."""

    def __init__(self) -> None:
        def say(view: EpisodeView) -> str:
            extra = view.qa.extra
            said = oracle.turns(view, extra["event_time"], extra["answer_text"], view.qa.answer)
            return said[len(view.turns)]

        super().__init__(say)
        self.seen: list[Frame] = []

    async def show(self, parts: Sequence[str | Frame]) -> bool:
        self.seen += [part for part in parts if isinstance(part, Frame)]
        return True


def share(frame: Frame, colour: tuple[int, int, int]) -> float:
    """Share of a frame's pixels that have a colour, encoding and resizing allowed for."""
    return float((np.abs(frame.image.astype(int) - colour).max(-1) < 45).mean())


RECIPE = WorldRecipe(mixture=(("colour", 0.4), ("shape", 0.3), ("overview", 0.3)))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[VideoQA]:
    folder = tmp_path_factory.mktemp("videos")
    made = []
    for scene in scenes("heldout", 8, 3, RECIPE):
        path = folder / f"{scene.seed}.mp4"
        write_video(scene, path, RECIPE)
        made.append(row_of(scene, str(path), "heldout"))
    return made


def test_oracle_finds_what_flashes(rows: list[VideoQA]) -> None:
    source = FrameStore()
    assert {qa.extra["kind"] for qa in rows} == {"colour", "shape", "overview"}
    for qa in rows:
        policy = Watching()
        trajectory = asyncio.run(play(LAPTOP, policy, qa, source))
        score = asyncio.run(LAPTOP.score(trajectory, qa, Graders()))
        assert (score.reward, score.format, trajectory.illegal_calls) == (1.0, 1.0, 0)
        assert [(frame.width, frame.height) for frame in policy.seen] == [(28, 28)] * 4
        for flash in make_scene(qa.extra["seed"], RECIPE).flashes:
            assert max(share(frame, COLOURS[flash.figures[0].colour]) for frame in policy.seen) > 0.2
        if qa.extra["kind"] == "overview":
            assert policy.seen[-1].time == pytest.approx(qa.extra["seconds"] - 1, abs=0.11)


def test_oracle_answers_in_words_without_options(rows: list[VideoQA]) -> None:
    qa = next(qa for qa in rows if qa.extra["kind"] == "colour")
    word = qa.extra["answer_text"]
    qa = replace(qa, options=(), answer=f"it is {word}", answer_type="open_ended")
    trajectory = asyncio.run(play(LAPTOP, Watching(), qa, FrameStore()))
    assert trajectory.answer == f"it is {word}"
    assert trajectory.turns[1].text == f"<think>{word}</think><answer>it is {word}</answer>"
    assert asyncio.run(LAPTOP.score(trajectory, qa, Graders())).reward == pytest.approx(1.0)


def test_it_looks_around_a_second_or_at_the_whole_video(qa: VideoQA, source: MemorySource) -> None:
    view = EpisodeView(qa, Video("memory", source.info, source))
    select = (
        '<think>{}</think><tool_call>{{"tool": "frame_select", "arguments": '
        '{{"start_time": {}, "end_time": {}, "nframes": 4, "resize": 1}}}}</tool_call>'
    )
    reply = "<think>it is green</think><answer>green</answer>"
    assert oracle.turns(view, 42.4, "green", "B") == (select.format("look near 42", 41, 43), reply)
    # 60 s are told as 59
    assert oracle.turns(view, None, "green", "B") == (select.format("look at all", 0, 59), reply)


def test_it_answers_in_a_sentence_where_there_are_no_options() -> None:
    assert oracle.answer_text("red", "", options=False) == "<think>red</think><answer>it is red</answer>"
