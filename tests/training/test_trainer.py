from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from agentic_video.training import trainer as trainer_module
from agentic_video.training.metrics import GroupNames
from agentic_video.training.trainer import (
    VideoAgentTrainer,
    episode_metrics,
    final_extras,
    sampled_reward,
    whole_groups,
)
from agentic_video.types.record import read_records
from agentic_video.types.row import VideoQA
from tests.types.test_trajectory import FULL


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
    other = {**extra, "video_qa": {**extra["video_qa"], "id": "other"}}
    trainer._dump_episodes([other, extra, other, extra])
    records = list(read_records(tmp_path / "e" / "step_000007.jsonl"))
    assert [(one.qa, one.trajectory, one.rewards) for one in records] == [(qa, FULL, {"reward": 1.0})] * 2
    assert records[0].provenance == {"source": "grpo", "step": 7, "experiment": "run", "model": "/models/m"}


def test_whole_groups_by_hand() -> None:
    # Four groups of two, a0 b0 c0 d0 a1 b1 c1 d1
    extras = [{"video_qa": {"id": name}, "member": member} for member in (0, 1) for name in "abcd"]

    def chosen(episodes: int, turn: int) -> str:
        return " ".join(f"{one['video_qa']['id']}{one['member']}" for one in whole_groups(extras, episodes, turn))

    assert [chosen(2, turn) for turn in (0, 1, 5)] == ["a0 a1", "b0 b1", "b0 b1"]
    assert chosen(1, 3) == "d0 d1"
    assert chosen(3, 0) == "a0 a1 c0 c1"
    assert chosen(100, 7).split() == [f"{name}{member}" for name in "abcd" for member in (0, 1)]
    assert chosen(0, 1) == "" and whole_groups([], 8, 1) == []


@pytest.mark.parametrize("folder", ["", "{tmp}/none"])
def test_nothing_is_written_where_nothing_is_asked(tmp_path: Path, folder: str) -> None:
    trainer = VideoAgentTrainer.__new__(VideoAgentTrainer)
    block = {"episodes_dir": folder.format(tmp=tmp_path), "episodes_per_step": 2}
    trainer.config = OmegaConf.create({"agentic_video": block})
    trainer.global_steps = 1
    trainer._dump_episodes([])
    assert not list(tmp_path.iterdir())


QA = VideoQA(id="q", video="/v.mp4", question="What?", answer="it", answer_type="open_ended", data_source="toy")


def extra(acc: float, final: bool = True) -> dict[str, Any]:
    return {
        "video_qa": QA.to_row(),
        "trajectory": FULL.to_dict(),
        "reward_extra_info": {"reward": acc, "acc": acc},
        "final_output": final,
    }


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """What the transfer queue holds, by key."""
    held: dict[str, dict[str, Any]] = {}

    def get(keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        assert select_fields == ["extra_fields"]
        return TensorDict({"extra_fields": NonTensorStack(*(held[key] for key in keys))}, [len(keys)])

    monkeypatch.setattr(trainer_module.tq, "kv_batch_get", get)
    return held


def batch(keys: list[str], **tags: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(keys=keys, tags=[tags.get(key, {}) for key in keys], partition_id="val")


def test_an_episode_counts_once(queue: dict[str, dict[str, Any]]) -> None:
    queue.update(a=extra(0.0, final=False), b=extra(1.0), c=extra(0.5))
    found = final_extras(batch(["a", "b", "c"], c={"is_padding": True}))
    assert [one["reward_extra_info"]["acc"] for one in found] == [1.0]
    assert final_extras(batch([])) == []


def test_a_validation_logs_figures_and_pictures(
    queue: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.update(a=extra(0.0), b=extra(1.0))
    trainer = VideoAgentTrainer.__new__(VideoAgentTrainer)
    trainer._names = GroupNames()
    batches = iter([batch(["a"]), batch(["b"])])
    buffer = trainer.replay_buffer = SimpleNamespace(sample=lambda **kwargs: (next(batches), {"kwargs": kwargs}))
    pictured: list[Any] = []
    monkeypatch.setattr(trainer, "_log_pictures", pictured.extend)

    def validate(self: Any) -> dict[str, float]:
        for _ in range(2):
            taken, metrics = self.replay_buffer.sample(partition_id="val", batch_size=1)
            assert metrics == {"kwargs": {"partition_id": "val", "batch_size": 1}}
            queue_before = dict(queue)
            for key in taken.keys:
                del queue[key]
            assert queue != queue_before
        return {"val-core/toy/acc/mean@1": 0.5}

    monkeypatch.setattr(PPOTrainerSync, "_validate", validate)
    metrics = trainer._validate()
    assert metrics["val-core/toy/acc/mean@1"] == 0.5
    assert metrics["val-agentic/toy/accuracy"] == 0.5
    assert metrics["val-agentic/toy/episodes"] == 2.0
    assert [one["reward_extra_info"]["acc"] for one in pictured] == [0.0, 1.0]
    assert trainer.replay_buffer is buffer


def test_a_validation_that_fails_leaves_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = VideoAgentTrainer.__new__(VideoAgentTrainer)
    buffer = trainer.replay_buffer = SimpleNamespace()

    def fail(self: Any) -> None:
        raise RuntimeError("engine")

    monkeypatch.setattr(PPOTrainerSync, "_validate", fail)
    with pytest.raises(RuntimeError, match="engine"):
        trainer._validate()
    assert trainer.replay_buffer is buffer


def test_the_config_says_how_many_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(trainer_module, "log_pictures", lambda *arguments: asked.append(arguments))
    trainer = VideoAgentTrainer.__new__(VideoAgentTrainer)
    system = {"_target_": "agentic_video.systems.videozoomer.system.VideoZoomer"}
    trainer.config = OmegaConf.create({"agentic_video": {"system": system, "log": {"validation_pictures": 5}}})
    trainer.logger = SimpleNamespace(logger={"console": None})
    trainer.global_steps = 9
    trainer._log_pictures([extra(1.0)])
    ((records, count, backends, step, _),) = asked
    assert [(one.qa, one.trajectory, one.rewards["acc"]) for one in records] == [(QA, FULL, 1.0)]
    assert (count, backends, step) == (5, {"console": None}, 9)
