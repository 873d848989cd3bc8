"""The example of a custom reward, through the config and the reward manager that verl calls."""

import asyncio
import re

import pytest
from evidence_reward import few_frames, with_judge

from agentic_video.config.settings import settings_of
from agentic_video.graders.base import Graders
from agentic_video.graders.judge import Judge, JudgeConfig
from agentic_video.systems.reward_function import score_episode
from agentic_video.types.action import Answer, Calls, ToolCall
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn
from tests.config.configs import composed
from tests.conftest import REPOSITORY

FRAMES = tuple(FrameRef(index, index / 10, 28, 28) for index in range(8))
ZOOM = Turn(
    '<think>a</think><video_zoom>{"segment": [1, 3], "fps": 4}</video_zoom>',
    Calls((ToolCall("video_zoom", {"segment": [1, 3], "fps": 4}),)),
    9,
    observation=FRAMES,
    legal_calls=1,
)


def episode(answer: str) -> Trajectory:
    last = Turn(f"<think>b</think><answer>{answer}</answer>", Answer(answer), 5)
    return Trajectory("q1", "videozoomer", (), (ZOOM, last), EndReason.ANSWER)


def overrides_of_run_sh() -> list[str]:
    text = (REPOSITORY / "examples" / "custom_reward" / "run.sh").read_text(encoding="utf-8")
    folder = str(REPOSITORY / "examples" / "custom_reward")
    found = re.findall(
        r"(agentic_video\.reward\.\w+=\S+)",
        text.replace('"$example/evidence_reward.py"', f"{folder}/evidence_reward.py"),
    )
    assert len(found) == 4
    return found


def test_few_frames_by_hand(qa: VideoQA) -> None:
    # 8 of 32 frames: 1 + 0.5 * 0.75
    found = few_frames(episode("B"), qa, Graders())
    assert (found.reward, found.acc) == (pytest.approx(1.375), 1.0)
    assert few_frames(episode("A"), qa, Graders()).reward == 0.0
    assert few_frames(episode("B"), qa, Graders(), budget=4).reward == 1.0


def test_the_judge_s_grade() -> None:
    class Half(Judge):
        async def grade(self, question: str, reference: str, candidate: str, scale: object = "binary") -> float:
            return 0.5

    row = VideoQA("q1", "v", "What?", "a dog", "open_ended")
    assert asyncio.run(with_judge(episode("two dogs"), row, Graders(Half(JudgeConfig())))).reward == 0.5


def test_run_sh_adds_it_to_the_system_s_reward(qa: VideoQA) -> None:
    settings = settings_of(composed("videozoomer", "laptop", *overrides_of_run_sh()))
    score = asyncio.run(score_episode(settings.system, episode("B"), qa, Graders(), settings.reward))
    # VideoZoomer's 0.9 + 0.1 + 0.5, and half of 1.375
    assert score.reward == pytest.approx(1.5 + 0.5 * 1.375)
    assert set(score.terms) == {"acc", "format", "tool", "few_frames_right", "few_frames_saved"}
