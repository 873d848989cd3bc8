"""The example's tool and system.

MemorySource's frame number i is grey i % 256, at 10 frames a second: neighbours differ by 1, but frame 256 (at 25.6 s)
falls from 255 to 0.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from brightness_tool import INSTRUCTIONS, SharpZoomer, find_changes
from omegaconf import OmegaConf

from agentic_video.config.settings import settings_of
from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import System
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.tools.base import Video
from agentic_video.toyworld.build.recipe import toy_recipe
from agentic_video.toyworld.oracles import oracle, turns_of
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.scenes import SceneSource, path_of
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory
from agentic_video.video.source import FrameSource
from agentic_video.video.store import FrameStore
from tests.config.configs import composed, set_environment
from tests.conftest import REPOSITORY, MemorySource

CUSTOM_TOOL = REPOSITORY / "examples" / "custom_tool"

SMALL = SharpZoomer(min_pixels=784, max_pixels=3136)
ZOOM = '<think>closer</think><video_zoom>{"segment": [25, 27], "fps": 2}</video_zoom>'
REPLY = "<think>seen</think><answer>B</answer>"


def changes(start: float, end: float, count: int, candidates: int = 64) -> list[int]:
    async def look() -> list[int]:
        video = await Video.open("memory", MemorySource())
        return [frame.index for frame in await find_changes(video, start, end, count, (28, 28), candidates)]

    return asyncio.run(look())


def run(system: System, qa: VideoQA, source: FrameSource, *texts: str) -> Trajectory:
    return asyncio.run(play(system, ScriptedPolicy(lambda view: texts[len(view.turns)]), qa, source))


def score(trajectory: Trajectory, qa: VideoQA, system: System = SMALL) -> Score:
    return asyncio.run(system.score(trajectory, qa, Graders()))


def test_the_strongest_change_is_found() -> None:
    # frames 250 to 270: 21 candidates; only 255 -> 256 changes by more than 1
    assert changes(25, 27, 1) == [256]


def test_of_equal_changes_the_earliest_are_taken_and_all_come_in_order_of_time() -> None:
    assert changes(25, 27, 3) == [251, 252, 256]


def test_a_short_stretch_has_fewer_changes_than_asked_for() -> None:
    assert changes(10.0, 10.2, 5) == [101, 102]


def test_a_stretch_of_one_frame_shows_that_frame() -> None:
    assert changes(10.0, 10.04, 3) == [100]


def test_candidates_are_thinned_evenly() -> None:
    # 0, 20, 40, 60 s are frames 0, 200, 400, 599, grey 0, 200, 144, 87: changes of 200, 56, 57
    assert changes(0, 60, 1, candidates=4) == [200]
    assert changes(0, 60, 2, candidates=4) == [200, 599]


def test_no_more_frames_are_read_than_candidates_and_result() -> None:
    source = MemorySource()

    async def look() -> None:
        await find_changes(await Video.open("memory", source), 0, 60, 2, (28, 28), candidates=16)

    asyncio.run(look())
    assert source.requested == 16 + 2


def test_a_flash_in_a_real_file(tmp_path: Path) -> None:
    # 4 s at 10 frames a second; frames 20, 21 and 22 are white
    path = tmp_path / "flash.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10, options={"threads": "1", "g": "10"})
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for number in range(40):
            grey = 250 if number in (20, 21, 22) else 60
            picture = np.full((64, 64, 3), grey, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    store = FrameStore()

    async def look() -> list[tuple[int, float, int]]:
        frames = await find_changes(await Video.open(str(path), store), 0.0, 4.0, 2, (56, 28))
        assert all((frame.width, frame.height) == (56, 28) for frame in frames)
        return [(frame.index, round(frame.time, 3), round(frame.image.mean() / 10)) for frame in frames]

    assert asyncio.run(look()) == [(20, 2.0, 25), (23, 2.3, 6)]
    store.close()


def test_a_zoom_shows_changes_with_their_times(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, ZOOM, REPLY)
    observation = trajectory.turns[0].observation
    # int(2 * 2) = 4 frames: the fall at 25.6 s, and of the others the earliest from 24 s on, a second before what is
    # asked for; VideoZoomer's four (25.0, 25.7, 26.3 and 27.0 s) miss it
    assert [part.index for part in observation if isinstance(part, FrameRef)] == [241, 242, 243, 256]
    assert observation[0] == "<tool_response>\n"
    assert observation[7] == "<frame3_time25.60s>"
    assert observation[-1] == "\n</tool_response>" + SMALL.go_on
    assert (trajectory.end, trajectory.answer, trajectory.tool_calls) == (EndReason.ANSWER, "B", 1)


def overrides_of_run_sh() -> list[str]:
    """What run.sh adds to VideoZoomer's command."""
    return re.findall(r"(\+?agentic_video[\w.]+=[\w.]+)", (CUSTOM_TOOL / "run.sh").read_text(encoding="utf-8"))


def test_run_sh_s_laptop_job_plays_and_sees_the_events_of_the_synthetic_world() -> None:
    config = composed("videozoomer", "laptop", *overrides_of_run_sh())
    sharp, toy = settings_of(config).system, toy_recipe(config)
    assert type(sharp) is SharpZoomer
    shown = {path_of(scene): scene for scene in scenes("heldout", 30, 0, toy.world)}
    source, policy = SceneSource(shown, toy.world), ScriptedPolicy(oracle(turns_of(sharp, toy.oracle)))
    looked = 0
    for path, scene in shown.items():
        trajectory = asyncio.run(play(sharp, policy, row_of(scene, path, "heldout"), source))
        assert trajectory.answer == scene.answer
        if scene.event_time is not None:
            looked += 1
            seen = [part for part in trajectory.turns[0].observation if isinstance(part, FrameRef)]
            assert any(flash.start <= frame.time < flash.end for frame in seen for flash in scene.flashes)
    assert looked > 10


def test_run_sh_starts_the_cluster_job_too(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)
    config = composed("videozoomer", "cluster", *overrides_of_run_sh())
    # a field for field comparison: a dataclass equals none of another class
    assert vars(settings_of(config).system) == vars(SharpZoomer())


def test_reward_pays_for_frames(qa: VideoQA, source: MemorySource) -> None:
    # 0.9 right + 0.1 format + 0.5 tool - 4 frames of 0.01
    earned = score(run(SMALL, qa, source, ZOOM, REPLY), qa)
    assert earned.reward == pytest.approx(1.46)
    assert earned.terms["frame_price"] == pytest.approx(-0.04)
    assert sum(earned.terms.values()) == pytest.approx(earned.reward)
    assert score(run(SMALL, qa, source, REPLY), qa).reward == pytest.approx(1.0)


@pytest.mark.parametrize(
    "call", ['{"segment": [0, 60], "fps": 2}', '{"segment": [9, 5], "fps": 2}', "{}", "nonsense", '{"segment": 1}']
)
def test_illegal_calls_are_answered_as_by_videozoomer(call: str, qa: VideoQA, source: MemorySource) -> None:
    turns = [f"<think>x</think><video_zoom>{call}</video_zoom>", REPLY]
    plain = VideoZoomer(min_pixels=784, max_pixels=3136)
    ours, theirs = run(SMALL, qa, source, *turns), run(plain, qa, source, *turns)
    assert ours.turns == theirs.turns
    assert "Error: " in str(ours.turns[0].observation[0])


def test_own_words_replace_the_prompt_only(qa: VideoQA, source: MemorySource) -> None:
    plain = run(SMALL, qa, source, REPLY).opening[0].parts
    own = run(SharpZoomer(min_pixels=784, max_pixels=3136, own_words=True), qa, source, REPLY).opening[0].parts
    assert own[1:] == plain[1:]
    assert str(own[0]).startswith("You answer a question about a video of 60.00 seconds.")
    assert '{"segment": [start_sec, end_sec], "fps": n}' in str(own[0])
    assert "16 at most. You may look 4 times." in str(own[0])
    assert "{duration" in INSTRUCTIONS


def test_scattered_frames_are_no_clip() -> None:
    with pytest.raises(ValueError, match="frames_as=video: a clip's frames are evenly spaced"):
        SharpZoomer(frames_as="video")


def test_config_alone_selects_it() -> None:
    system = {"_target_": "brightness_tool.SharpZoomer", "max_turns": 3, "frame_price": 0.02}
    settings = settings_of(OmegaConf.create({"agentic_video": {"system": system}}))
    assert settings.system == SharpZoomer(max_turns=3, frame_price=0.02)


@pytest.mark.recipes
@pytest.mark.timeout(3600)
def test_two_steps_of_the_laptop_job(tmp_path: Path) -> None:
    # the command sets the platform by itself
    environment = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"}
    job = subprocess.run(
        [
            "bash",
            str(CUSTOM_TOOL / "run.sh"),
            "--profile",
            "laptop",
            "trainer.total_training_steps=2",
            "trainer.val_before_train=False",
            "trainer.save_freq=-1",
            "trainer.test_freq=-1",
        ],
        env={**environment, "PYTHON": sys.executable, "OUTPUT_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=3500,
        check=False,
    )
    assert job.returncode == 0, job.stdout[-4000:] + job.stderr[-4000:]
    (run_folder,) = (tmp_path / "videozoomer-laptop").glob("run-*")
    records = [
        json.loads(line)
        for file in run_folder.glob("metrics-*.jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    tool = [record["data"]["episode/tool"] for record in records if "episode/tool" in record["data"]]
    assert len(tool) == 2
    assert max(tool) > 0
    # the term that only this system has
    assert any("episode/term_frame_price" in record["data"] for record in records)
