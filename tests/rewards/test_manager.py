import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto

from agentic_video.data.schema import VideoQA
from agentic_video.rewards.judge import JudgeError
from agentic_video.rewards.manager import VideoAgentRewardManager
from agentic_video.rollout.trajectory import EndReason, Trajectory, Turn
from agentic_video.systems.base import Answer, Calls, Illegal, ToolCall

CHOICE = VideoQA(id="q", video="v", question="What?", answer="B", options=("x", "y"))
OPEN = VideoQA(id="q", video="v", question="What?", answer="a cat", answer_type="open_ended")
ANSWERED = Trajectory(
    "q", "videozoomer", (),
    (
        Turn("<think>a</think><video_zoom>{}</video_zoom>", Calls((ToolCall("video_zoom", {}),)), 5, legal_calls=1),
        Turn("<think>b</think><answer>B</answer>", Answer("B"), 5),
    ),
    EndReason.ANSWER,
)  # fmt: skip
FAILED = Trajectory("q", "videozoomer", (), (Turn("x", Illegal("y"), 1, illegal_calls=1),), EndReason.ILLEGAL)


def run(trajectory: Trajectory, qa: VideoQA, **judge: Any) -> dict[str, Any]:
    config = OmegaConf.create(
        {"agentic_video": {"system": {"_target_": "agentic_video.systems.videozoomer.VideoZoomer"}, "judge": judge}}
    )
    fields = np.empty(1, dtype=object)
    fields[0] = {"trajectory": trajectory.to_dict(), "video_qa": qa.to_row()}
    batch = TensorDict({"responses": torch.zeros(1, 3)}, batch_size=1)
    data = DataProto(batch=batch, non_tensor_batch={"tool_extra_fields": fields})

    async def score() -> dict[str, Any]:
        return await VideoAgentRewardManager(config, tokenizer=None, compute_score=None).run_single(data)

    return asyncio.run(score())


def test_score_and_what_is_logged() -> None:
    result = run(ANSWERED, CHOICE)
    info = result["reward_extra_info"]
    assert result["reward_score"] == info["reward"] == 1.5
    assert info["reward_key"] == 15_000.0
    assert (info["acc"], info["format"], info["tool"], info["turns"], info["tool_calls"]) == (1.0, 1.0, 1.0, 2.0, 1.0)
    assert (info["end_answer"], info["end_illegal"]) == (1.0, 0.0)
    assert sum(value for key, value in info.items() if key.startswith("end_")) == 1.0
    assert sum(value for key, value in info.items() if key.startswith("term_")) == pytest.approx(1.5)


def test_keys_are_always_the_same() -> None:
    infos = [run(ANSWERED, CHOICE), run(FAILED, CHOICE), run(ANSWERED, OPEN, on_failure="zero")]
    assert len({tuple(result["reward_extra_info"]) for result in infos}) == 1


def test_a_judge_that_fails_drops_the_group_or_scores_zero() -> None:
    unreachable = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "max_retries": 0}
    with pytest.raises(JudgeError):
        run(ANSWERED, OPEN, **unreachable)
    result = run(ANSWERED, OPEN, **unreachable, on_failure="zero")
    assert result["reward_score"] == pytest.approx(0.1)  # format alone
    assert result["reward_extra_info"]["judge_failed"] == 1.0


def test_an_unanswered_open_question_needs_no_judge() -> None:
    assert run(FAILED, OPEN)["reward_score"] == 0.0


def test_misspelt_choices_are_refused() -> None:
    with pytest.raises(ValueError, match="on_failure must be one of"):
        run(FAILED, CHOICE, on_failure="drop")
