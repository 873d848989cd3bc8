import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import Qwen2VLImageProcessor
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.utils import hf_processor

from agentic_video.training.agent_loop import FRAME_KEYS
from agentic_video.training.agent_loop_manager import PatchCache, VideoAgentLoopWorker

PROCESSOR = Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352)


def image(seed: int, width: int = 56, height: int = 28) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def test_output_is_the_processors_own() -> None:
    images = [image(0), image(1, 84, 56), image(0), image(2, 28, 28)]
    expected = PROCESSOR(images=images, return_tensors="pt")
    cache = PatchCache(PROCESSOR)
    for _ in range(2):
        inputs = cache.inputs(images, ["a", "b", "a", "c"])
        assert torch.equal(inputs["pixel_values"], expected["pixel_values"])
        assert torch.equal(inputs["image_grid_thw"], expected["image_grid_thw"])
        # patches of 14 pixels: 56 x 28 has 4 x 2, 84 x 56 has 6 x 4, 28 x 28 has 2 x 2
        assert inputs["images_seqlens"].tolist() == [8, 24, 8, 4]
    assert cache.processed == 3


def test_a_sequence_without_images_has_no_inputs() -> None:
    assert PatchCache(PROCESSOR).inputs([], []) == {}


def test_bytes_are_bounded() -> None:
    one = PROCESSOR(images=[image(0)], return_tensors="pt")["pixel_values"].nbytes
    cache = PatchCache(PROCESSOR, max_bytes=2 * one)
    for number in range(5):
        cache.inputs([image(number)], [number])
    assert cache._bytes == 2 * one
    assert list(cache._patches) == [3, 4]
    images = [image(number) for number in range(5)]
    inputs = cache.inputs(images, list(range(5)))  # more at once than are kept
    assert torch.equal(inputs["pixel_values"], PROCESSOR(images=images, return_tensors="pt")["pixel_values"])
    assert cache._bytes <= 2 * one


def test_an_episode_of_several_sequences_is_scored_once(checkpoint: Path) -> None:
    """verl alone can't put multimodal sequences of unequal length into the batch that it scores."""
    worker = object.__new__(VideoAgentLoopWorker)
    worker.processor, worker.mm_processor_kwargs = hf_processor(str(checkpoint)), {}
    worker._patch_cache, worker._positions = PatchCache(worker.processor.image_processor), {}
    pad = worker.processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    scored: list[Any] = []

    async def compute_score(data: Any) -> dict[str, Any]:
        scored.append(data)
        return {"reward_score": 0.5, "reward_extra_info": {"acc": 1.0}}

    worker.reward_loop_worker_handles = [SimpleNamespace(compute_score=SimpleNamespace(remote=compute_score))]
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
