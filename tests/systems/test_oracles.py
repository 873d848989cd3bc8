"""The oracles of all nine systems: their texts, and what they find and earn in encoded videos."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentic_video.rollout.episode import play
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.eva import Eva
from agentic_video.systems.framemind import FrameMind, FrameSampling
from agentic_video.systems.framethinker import FrameThinker
from agentic_video.systems.longvt import LongVT
from agentic_video.systems.paravt import ParaVT
from agentic_video.systems.paravt.oracle import NOTHING
from agentic_video.systems.registry import SYSTEMS, system_class, system_module
from agentic_video.systems.timesearch import TimeSearch
from agentic_video.systems.videobrain import VideoBrain
from agentic_video.systems.videoo3 import VideoO3
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.tools.base import Video
from agentic_video.toyworld.oracles import oracle_policy, turns_of
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.world import WorldRecipe, write_video
from agentic_video.types.frame import Frame
from agentic_video.types.message import AsideRequest, Message
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import recorded_frames
from agentic_video.video.store import FrameStore
from tests.conftest import MemorySource
from tests.systems.played import score


def view_of(qa: VideoQA, **extra: Any) -> EpisodeView:
    source = MemorySource()
    return EpisodeView(replace(qa, extra=extra), Video("memory", source.info, source))


def tool(name: str, arguments: str, key: str = "name") -> str:
    return f'<tool_call>{{"{key}": "{name}", "arguments": {{{arguments}}}}}</tool_call>'


THINKS = "<think>{}</think>{}"
REPLY = "<think>it is green</think><answer>green</answer>"
SELECT = '"start_time": {}, "end_time": {}, "nframes": 4, "resize": 1'
NEAR = THINKS.format("look near 42", "{}")
TEXTS: list[tuple[str, dict[str, str], float | None, tuple[str, ...]]] = [
    ("videozoomer", {}, 42.4, (NEAR.format('<video_zoom>{"segment": [42, 43], "fps": 4}</video_zoom>'),)),
    # what came first is over by the event's middle
    (
        "videozoomer",
        {"kind": "order"},
        42.4,
        (NEAR.format('<video_zoom>{"segment": [41, 43], "fps": 4}</video_zoom>'),),
    ),
    (
        "framethinker",
        {},
        42.0,
        (
            "<think>when is 00:42</think><action>get frame number at time 00:42</action>",
            "<think>look between 410 and 430</think><action>choose frames between 410 and 430</action>",
        ),
    ),
    # one tool at even seconds, both at odd ones
    ("framemind", {}, 42.4, (NEAR.format(tool("FrameAt", '"t": 42') + "<turn_sum>look 42</turn_sum>"),)),
    (
        "framemind",
        {},
        43.0,
        (
            THINKS.format(
                "look near 43",
                tool("FrameAt", '"t": 43')
                + tool("VideoClip", '"t_start": 42, "t_end": 44')
                + "<turn_sum>look 43</turn_sum>",
            ),
        ),
    ),
    (
        "videobrain",
        {"kind": "beside", "beside": "red"},
        42.4,
        (THINKS.format("find red", tool("clip_sample", '"start_frame": 0, "end_frame": 999, "prompt": "red"')),),
    ),
    ("videobrain", {}, 42.4, (NEAR.format(tool("uniform_sample", '"start_frame": 410, "end_frame": 430')),)),
    ("eva", {}, 42.4, (NEAR.format(tool("frame_select", SELECT.format(41, 43), "tool")),)),
    # it begins without frames; 60 s are told as 59
    ("eva", {}, None, (THINKS.format("look at all", tool("frame_select", SELECT.format(0, 59), "tool")),)),
    ("longvt", {}, 42.4, (NEAR.format(tool("crop_video", '"start_time": 41, "end_time": 43')),)),
    (
        "timesearch",
        {"kind": "beside", "beside": "red"},
        42.4,
        (THINKS.format("find red", tool("seek_video_frames", '"query": "red"')),),
    ),
    ("timesearch", {}, 42.4, (NEAR.format(tool("seek_video_frames", '"start_time": 42, "end_time": 43')),)),
    (
        "timesearch",
        {"kind": "order"},
        42.4,
        (NEAR.format(tool("seek_video_frames", '"start_time": 41, "end_time": 43')),),
    ),
    # one stretch at even seconds, two at once at odd ones; the first thought's tag is given
    ("paravt", {}, 42.4, (NEAR.format(tool("crop_video", '"start_time": 42, "end_time": 43')),)),
    (
        "paravt",
        {},
        43.0,
        (
            THINKS.format(
                "look near 43",
                tool("crop_video", '"start_time": 43, "end_time": 44')
                + tool("crop_video", '"start_time": 45, "end_time": 46'),
            ),
        ),
    ),
    (
        "videoo3",
        {},
        42.4,
        (NEAR.format('<grounding>{"temporal_segment": [42, 43], "sampling_strategy": "fine"}</grounding>'),),
    ),
]


@pytest.mark.parametrize(("name", "extra", "aim", "looks"), TEXTS)
def test_an_oracle_looks_around_the_event_and_answers(
    qa: VideoQA, name: str, extra: dict[str, str], aim: float | None, looks: tuple[str, ...]
) -> None:
    *said, answer = system_module(name, "oracle").turns(view_of(qa, **extra), aim, "green", "B")
    thought = {"videobrain": "thinking"}.get(name, "think")
    given = "<think>" if name == "paravt" else ""
    assert [given + text for text in said] == [text.replace("think>", f"{thought}>") for text in looks]
    assert answer.startswith("" if given else f"<{thought}>it is green") and "green</" in answer


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "eva"])
def test_an_oracle_without_an_aim_answers_at_once(qa: VideoQA, name: str) -> None:
    turns = system_module(name, "oracle").turns
    assert turns(view_of(qa), None, "green", "B") == turns(view_of(qa), 42.0, "green", "B")[-1:]


def test_eva_s_oracle_answers_in_a_sentence_where_there_are_no_options(qa: VideoQA) -> None:
    turns = system_module("eva", "oracle").turns
    assert turns(view_of(replace(qa, options=())), 42.0, "red", "")[1] == "<think>red</think><answer>it is red</answer>"


@pytest.mark.parametrize(
    ("extra", "times", "said"),
    [
        ({"kind": "colour"}, [41.0, 42.0, 43.0], "it is green"),
        ({"kind": "colour"}, [41.0, 43.0], NOTHING),
        ({"kind": "overview", "event_time": None}, [42.0], NOTHING),
        ({"kind": "search"}, [10.0, 11.0], "later"),
        ({"kind": "search"}, [50.0, 51.0], "earlier"),
        ({"kind": "search"}, [41.0, 42.0], "it is green"),
    ],
)
def test_side_queries_are_answered_by_what_their_frames_show(
    qa: VideoQA, extra: dict[str, Any], times: list[float], said: str
) -> None:
    # the event lasts from 41.75 to 42.65 s
    row = replace(qa, extra={"event_time": 42.2, "event_seconds": 0.9, "answer_text": "green", **extra})
    frames = tuple(Frame(0, time, np.zeros((2, 2, 3), np.uint8)) for time in times)
    request = AsideRequest((Message("user", (*frames, "\nWhat flashes?")),), max_tokens=8)
    assert system_module("paravt", "oracle").asides(row, request) == said
    verified = REPLY if said == "it is green" else "<think>not seen</think>"
    assert system_module("timesearch", "oracle").asides(row, request) == verified
    assert system_module("paravt", "oracle").asides(qa, request) == NOTHING, "a row of another world"


ONE = FrameSampling(6, 28, 28)
SMALL: list[tuple[System, set[float], float]] = [
    # the rewards of a right answer after a look, and of one from the first view alone
    (VideoZoomer(min_pixels=784, max_pixels=784, answer_match="robust"), {1.5}, 1.0),
    (FrameThinker(max_width=28, max_height=28, look_frames=4), {1.02, 1.52}, 1.0),
    (FrameMind(low=ONE, high=ONE, tool_side=28, clip_min_frames=4, answer_match="robust"), {2.5, 2.7}, 1.0),
    (VideoBrain(max_width=32, max_height=32, uniform_frames=4, answer_match="robust"), {1.55}, 1.55),
    (Eva(max_tokens=6, max_pixels=3136, csv=False), {1.0}, 1.0),
    # the crop's two seconds hold 0.9 of the event
    (LongVT(overview_max_frames=6, max_pixels=784, min_pixels=784, crop_fps=2.0, video_path="none"), {2.45}, 2.0),
    (TimeSearch(overview_max_frames=6, seek_min_tokens=1, min_frame_tokens=1, answer_match="robust"), {2.0}, 1.5),
    (ParaVT(overview_least=2, overview_frames=8, max_pixels=1024, crop_fps=4.0), {2.6}, 2.0),
    (VideoO3(overview_max_frames=6, answer_match="robust"), {2.0}, 2.0),
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[VideoQA]:
    recipe = WorldRecipe(max_seconds=40, mixture=(("colour", 0.7), ("overview", 0.3)))
    folder: Path = tmp_path_factory.mktemp("videos")
    made = []
    for scene in scenes("heldout", 6, 11, recipe):
        write_video(scene, folder / f"{scene.seed}.mp4", recipe)
        made.append(row_of(scene, str(folder / f"{scene.seed}.mp4"), "heldout"))
    assert {qa.extra["event_time"] is None for qa in made} == {True, False}
    return made


@pytest.mark.parametrize(("system", "looked", "at_once"), SMALL, ids=lambda value: getattr(value, "name", ""))
def test_an_oracle_solves_the_world(rows: list[VideoQA], system: System, looked: set[float], at_once: float) -> None:
    store, turns = FrameStore(), turns_of(system)
    for qa in rows:
        trajectory = asyncio.run(play(system, oracle_policy(turns), qa, store))
        found = score(system, trajectory, qa)
        assert (found.acc, found.format, trajectory.illegal_calls) == (1.0, 1.0, 0), trajectory
        aimed = qa.extra["event_time"] is not None
        assert bool(trajectory.tool_calls) == (aimed or isinstance(system, Eva))
        queries = [message.parts for turn in trajectory.turns for aside in turn.asides for message in aside.messages]
        shown = [
            ref
            for parts in (*(turn.observation for turn in trajectory.turns), *queries)
            for ref in recorded_frames(parts)
        ]
        assert not aimed or any(abs(ref.time - qa.extra["event_time"]) < qa.extra["event_seconds"] / 2 for ref in shown)
        assert round(found.reward, 2) in (looked if aimed else {at_once})


def test_every_packaged_system_is_here() -> None:
    assert [type(system) for system, *_ in SMALL] == [system_class(name) for name in SYSTEMS]
    assert {name for name, *_ in TEXTS} == set(SYSTEMS)
