"""The reward manager that verl calls for every finished episode."""

from dataclasses import replace
from typing import Any

from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from agentic_video.data.schema import VideoQA
from agentic_video.rewards.judge import Judge, JudgeError
from agentic_video.rollout.trajectory import EndReason, Trajectory
from agentic_video.settings import settings_of
from agentic_video.systems.base import Graders, Score

REWARD_MANAGER_NAME = "video_agent"
REWARD_KEY_UNITS = 1e4
"""``reward_key`` counts in units of one over this."""


def reward_info(trajectory: Trajectory, score: Score, judge_failed: bool = False) -> dict[str, float]:
    """What is logged about one episode; the keys are always the same for one system.

    ``reward_key`` is the reward in units of 1e-4, rounded: groups are dropped when it is the same for all members,
    which is VideoZoomer's "std below 1e-4" without its dependence on rounding errors of a mean.
    """
    info = {
        "reward": score.reward,
        "reward_key": float(round(score.reward * REWARD_KEY_UNITS)),
        "acc": score.acc,
        "format": score.format,
        "tool": float(trajectory.tool_calls > 0),
        "turns": float(len(trajectory.turns)),
        "tool_calls": float(trajectory.tool_calls),
        "illegal_calls": float(trajectory.illegal_calls),
        "frames": float(len(trajectory.frames)),
        "judge_failed": float(judge_failed),
    }
    info.update({f"term_{name}": value for name, value in score.terms.items()})
    info.update({f"end_{reason.value}": float(trajectory.end is reason) for reason in EndReason})
    return info


@register(REWARD_MANAGER_NAME)
class VideoAgentRewardManager(RewardManagerBase):
    """Scores an episode's trajectory with its system's reward."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **kwargs: Any):
        super().__init__(config, tokenizer, compute_score)
        self.settings = settings_of(config)
        self.graders = Graders(judge=Judge(self.settings.judge))

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score the last output of one episode.

        Raises:
            JudgeError: No grade for an open-ended answer and the policy is ``drop_group``: verl drops the group.
        """
        fields = data[-1:].non_tensor_batch["tool_extra_fields"][0]
        trajectory = Trajectory.from_dict(fields["trajectory"])
        qa = VideoQA.from_row(fields["video_qa"])
        system = self.settings.system
        failed = False
        try:
            score = await system.score(trajectory, qa, self.graders)
        except JudgeError:
            if self.settings.judge.on_failure == "drop_group":
                raise
            failed = True
            score = await system.score(trajectory, qa, replace(self.graders, judge=_NoGrade(self.settings.judge)))
        return {"reward_score": score.reward, "reward_extra_info": reward_info(trajectory, score, failed)}


class _NoGrade(Judge):
    """Stands in where the judge failed and the policy counts the answer as wrong."""

    async def grade(self, question: str, reference: str, candidate: str) -> float:
        return 0.0
