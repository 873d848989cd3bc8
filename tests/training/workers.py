"""verl's agent-loop worker with ours on top, really made, but without Ray and its queue."""

from pathlib import Path
from typing import Any

import pytest
from verl.trainer.ppo.v1 import agent_loop_tq

from agentic_video.training.agent_loop_manager import VideoAgentLoopWorker
from tests.config.configs import composed


def make_worker(monkeypatch: pytest.MonkeyPatch, checkpoint: Path, reward_workers: Any = None) -> VideoAgentLoopWorker:
    """A worker of a laptop run of a checkpoint.

    Args:
        reward_workers: Stand-ins for the handles of verl's reward-loop workers.
    """
    monkeypatch.setattr(agent_loop_tq.tq, "init", lambda: None)
    model = f"actor_rollout_ref.model.path={checkpoint}"
    config = composed("videozoomer", "laptop", "data.train_files=none", model)
    return VideoAgentLoopWorker(config, llm_client=None, reward_loop_worker_handles=reward_workers)
