import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

from agentic_video.training.agent_loop import FRAME_KEYS, VALIDATE
from agentic_video.training.agent_loop_manager import VideoAgentLoopWorker
from tests.training.test_model_inputs import image
from tests.training.workers import make_worker

STOCK: Any = VideoAgentLoopWorker.__base__
"""verl's own worker."""


@pytest.mark.parametrize("validate", [True, False])
def test_an_agent_loop_is_told_of_validation(validate: bool, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    async def run(self: Any, sampling_params: Any, trajectory: Any, **row: Any) -> str:
        asked.append(row)
        return "ran"

    monkeypatch.setattr(STOCK, "_run_agent_loop", run)
    worker = make_worker(monkeypatch, checkpoint)
    assert asyncio.run(worker._run_agent_loop({}, {"validate": validate}, session_id=2)) == "ran"
    assert asked == [{"session_id": 2, VALIDATE: validate}]


def test_an_episode_of_several_sequences_is_scored_once(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl alone can't put multimodal sequences of unequal length into the batch that it scores."""
    scored: list[Any] = []

    async def compute_score(data: Any) -> dict[str, Any]:
        scored.append(data)
        return {"reward_score": 0.5, "reward_extra_info": {"acc": 1.0}}

    handles = [SimpleNamespace(compute_score=SimpleNamespace(remote=compute_score))]
    worker = make_worker(monkeypatch, checkpoint, handles)
    pad = worker.processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    outputs = [
        AgentLoopOutput(
            prompt_ids=[1, 2, pad, *([3] * more)],
            response_ids=[4, 5],
            response_mask=[1, 1],
            multi_modal_data={"images": [image(0, 28, 28)], FRAME_KEYS: ["a"]},
            metrics=AgentLoopMetrics(),
            extra_fields={"number": more},
        )
        for more in (0, 7)
    ]
    asyncio.run(worker._compute_score(outputs, {}))
    assert [output.reward_score for output in outputs] == [None, 0.5]
    (data,) = scored
    assert data.non_tensor_batch["tool_extra_fields"][0]["number"] == 7
    assert data.batch["position_ids"].shape == (1, 4, 12)


def test_images_are_processed_and_positions_computed_once(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl asks for both twice: for the score and for the batch."""
    worker = make_worker(monkeypatch, checkpoint)
    pad = worker.processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    ids = torch.tensor([1, pad, 2, pad, 3])
    data = {"images": [image(0, 28, 28), image(1, 28, 28)], FRAME_KEYS: ["a", "b"]}
    output = SimpleNamespace(multi_modal_data=data)
    computed: list[torch.Tensor] = []
    original = STOCK._compute_position_ids

    def compute(self: Any, *args: Any) -> torch.Tensor:
        computed.append(original(self, *args))
        return computed[-1]

    monkeypatch.setattr(STOCK, "_compute_position_ids", compute)
    found = []
    for _ in range(2):
        inputs = worker._compute_multi_modal_inputs(output, ids)
        assert "mm_token_type_ids" in inputs
        found.append(worker._compute_position_ids(ids[None], torch.ones_like(ids)[None], inputs))
        # verl takes this key away when it computes positions; what goes into the batch must not depend on the cache
        assert set(inputs) == {"pixel_values", "image_grid_thw", "images_seqlens"}
    assert len(computed) == 1 and worker.patches.processed == 2
    assert torch.equal(found[0], found[1]) and found[0].shape == (1, 4, 5)
    # both are there: a third time it is another rollout's
    assert len(worker.positions) == 0


def test_outputs_of_others_go_verls_own_way(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = make_worker(monkeypatch, checkpoint)
    monkeypatch.setattr(STOCK, "_compute_multi_modal_inputs", lambda self, output, ids: {"stock": True})
    output = SimpleNamespace(multi_modal_data={"images": [image(0)]})
    assert worker._compute_multi_modal_inputs(output, torch.tensor([1])) == {"stock": True}
