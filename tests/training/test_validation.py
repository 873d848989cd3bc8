from typing import Any

import numpy as np
import pytest
import torch

from agentic_video.report.held_out import GREEDY
from agentic_video.training.logs.metrics import GroupNames, group_metrics
from agentic_video.training.ppo.validation import ROLLOUTS, WithGreedy, greedy_name, validation_batch
from tests.config.configs import composed

BATCH = {
    "raw_prompt": np.array([["a"], ["b"]], dtype=object),
    "data_source": np.array(["toy", "other"], dtype=object),
    "dummy_tensor": torch.tensor([[1], [2]]),
}


def test_each_question_is_asked_a_second_time() -> None:
    loader = WithGreedy([BATCH], rollouts=4)
    assert len(loader) == 1
    (batch,) = loader
    assert batch["raw_prompt"].tolist() == [["a"], ["b"], ["a"], ["b"]]
    assert batch["dummy_tensor"].tolist() == [[1], [2], [1], [2]]
    assert batch["data_source"].tolist() == ["toy", "other", "toy/greedy", "other/greedy"]
    # Python's own: verl puts them into a row as they are
    assert batch[GREEDY].tolist() == [False, False, True, True] and batch[GREEDY].dtype == object
    assert batch[ROLLOUTS].tolist() == [4, 4, 1, 1]
    assert BATCH["data_source"].tolist() == ["toy", "other"]


def test_greedy_episodes_have_separate_figures() -> None:
    def episode(greedy: bool, acc: float) -> dict[str, Any]:
        row = {"data_source": "toy", "extra_info": {"class": "active"}}
        return {"video_qa": row, "reward_extra_info": {"acc": acc}, GREEDY: greedy}

    metrics = group_metrics([episode(False, 0.0), episode(True, 1.0)], "val", GroupNames())
    assert metrics["val-agentic/toy/accuracy"] == metrics["val-agentic/toy/active/accuracy"] == 0.0
    assert metrics["val-agentic/toy/greedy/accuracy"] == metrics["val-agentic/toy/greedy/active/accuracy"] == 1.0
    assert greedy_name("toy") == "toy/greedy"


@pytest.mark.parametrize(
    ("overrides", "batch"),
    [
        # 16 engines of 128 places
        ((), 2048),
        (("actor_rollout_ref.rollout.val_kwargs.n=4",), 512),
        (("actor_rollout_ref.rollout.tensor_model_parallel_size=4", "trainer.nnodes=1"), 256),
        # 8 GPUs of their own
        (("actor_rollout_ref.rollout.nnodes=1", "actor_rollout_ref.rollout.n_gpus_per_node=8"), 1024),
        (("actor_rollout_ref.rollout.val_kwargs.n=100000",), 1),
    ],
)
def test_a_validation_fills_the_engines(overrides: tuple[str, ...], batch: int) -> None:
    config = composed("videozoomer", "cluster", *overrides)
    assert config.data.val_batch_size is None
    assert validation_batch(config) == batch
