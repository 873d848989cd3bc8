"""verl's agent-loop worker with ours on top, really made, but without Ray and its queue."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.v1 import agent_loop_tq

from agentic_video.families.registry import family_of
from agentic_video.training.engines.actor import reference_pixels, sequence_inputs, with_pixels
from agentic_video.training.inputs.references import IMAGES, SequenceImages
from agentic_video.training.loop import agent_loop_manager
from agentic_video.training.loop.agent_loop_manager import INPUTS, VideoAgentLoopManager, VideoAgentLoopWorker
from agentic_video.types.frame import Clip, ImageRef, VideoRef
from agentic_video.types.message import Visual, frames_of
from agentic_video.video.store_config import StoreConfig
from tests.config.configs import composed


def make_worker(monkeypatch: pytest.MonkeyPatch, checkpoint: Path, reward_workers: Any = None) -> VideoAgentLoopWorker:
    monkeypatch.setattr(agent_loop_tq.tq, "init", lambda: None)
    model = f"actor_rollout_ref.model.path={checkpoint}"
    config = composed("videozoomer", "laptop", "data.train_files=none", model)
    return VideoAgentLoopWorker(config, llm_client=None, reward_loop_worker_handles=reward_workers)


def make_manager(
    monkeypatch: pytest.MonkeyPatch, workers: int, handle: Callable[[str, int, Any], None]
) -> VideoAgentLoopManager:
    monkeypatch.setattr(agent_loop_manager.ray, "get", lambda handed: None)

    def method(name: str, number: int) -> SimpleNamespace:
        return SimpleNamespace(remote=lambda rows: handle(name, number, rows))

    manager = VideoAgentLoopManager.__new__(VideoAgentLoopManager)  # its constructor starts Ray's actors
    names = "generate_sequences", "prefetch"
    manager.agent_loop_workers = [
        SimpleNamespace(**{name: method(name, number) for name in names}) for number in range(workers)
    ]
    manager._next_worker = manager._next_validating = 0
    return manager


def loop_output(prompt: list[int], response: list[int], shown: Any = None, **extra: Any) -> AgentLoopOutput:
    return AgentLoopOutput(
        prompt_ids=prompt,
        response_ids=response,
        response_mask=[1] * len(response),
        multi_modal_data=None if shown is None else {IMAGES: shown},
        metrics=AgentLoopMetrics(),
        extra_fields=extra,
    )


def sequence_images(shown: Sequence[Visual]) -> SequenceImages:
    refs = tuple(VideoRef.of(visual) if isinstance(visual, Clip) else ImageRef.of(visual) for visual in shown)
    return SequenceImages(refs, StoreConfig())


def trained_inputs(
    worker: VideoAgentLoopWorker, ids: Sequence[int], shown: Sequence[Visual]
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Positions of shape (4, tokens) and inputs of a rollout's sequence, as the trainer gives them to the model."""
    data: dict[str, Any] = {IMAGES: sequence_images(shown)}
    output = SimpleNamespace(prompt_ids=ids[:1], response_ids=ids[1:], multi_modal_data=data)
    data[INPUTS] = worker._inputs(output)
    rows = torch.tensor([list(ids)])
    inputs = worker._compute_multi_modal_inputs(output, rows[0])
    positions = worker._compute_position_ids(rows, torch.ones_like(rows), inputs)
    pixels = {frame.key: frame.image for frame in frames_of(shown)}
    made = reference_pixels(worker.processor, [data[IMAGES]], pixels)
    batch = TensorDict({"multi_modal_inputs": [inputs]}, batch_size=[1])
    (given,) = sequence_inputs(with_pixels(family_of(worker.processor), batch, made))
    return positions.squeeze(0), dict(given)
