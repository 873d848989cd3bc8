from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agentic_video.data.records import read_records
from agentic_video.data.schema import VideoQA
from agentic_video.training.trainer import VideoAgentTrainer, episode_metrics, sampled_reward
from tests.rollout.test_trajectory import FULL


def test_means_over_episodes() -> None:
    extras = [{"reward_extra_info": {"reward": 1.0, "acc": 1.0}}, {"reward_extra_info": {"reward": 0.1, "acc": 0.0}}]
    assert episode_metrics(extras) == {"episode/reward": 0.55, "episode/acc": 0.5}


def test_sampled_reward_counts_evicted_groups() -> None:
    # four kept episodes of 0.5 in mean, one evicted group of two at 1.5: (4 * 0.5 + 2 * 1.5) / 6
    assert sampled_reward([0.0, 1.0, 0.0, 1.0], {15_000.0: 1}, 2) == pytest.approx(5 / 6)
    assert sampled_reward([0.0, 1.0], {}, 2) == 0.5


def test_some_episodes_of_a_step_are_written(tmp_path: Path) -> None:
    trainer = VideoAgentTrainer.__new__(VideoAgentTrainer)
    trainer.config = OmegaConf.create(
        {
            "agentic_video": {"episodes_dir": str(tmp_path / "e"), "episodes_per_step": 2},
            "trainer": {"experiment_name": "run"},
            "actor_rollout_ref": {"model": {"path": "/models/m"}},
        }
    )
    trainer.global_steps = 7
    qa = VideoQA(id="q", video="/v.mp4", question="What?", answer="it", answer_type="open_ended")
    extra = {"video_qa": qa.to_row(), "trajectory": FULL.to_dict(), "reward_extra_info": {"reward": 1}, "other": 1}
    trainer._dump_episodes([extra] * 5)
    records = list(read_records(tmp_path / "e" / "step_000007.jsonl"))
    assert [(one.qa, one.trajectory, one.rewards) for one in records] == [(qa, FULL, {"reward": 1.0})] * 2
    assert records[0].provenance == {"source": "grpo", "step": 7, "experiment": "run", "model": "/models/m"}


@pytest.mark.parametrize("folder", ["", "{tmp}/none"])
def test_nothing_is_written_where_nothing_is_asked(tmp_path: Path, folder: str) -> None:
    trainer = VideoAgentTrainer.__new__(VideoAgentTrainer)
    block = {"episodes_dir": folder.format(tmp=tmp_path), "episodes_per_step": 2}
    trainer.config = OmegaConf.create({"agentic_video": block})
    trainer.global_steps = 1
    trainer._dump_episodes([])
    assert not list(tmp_path.iterdir())
