"""What must hold on a GPU and, small, on a CPU: the same code for both, called with the device's name."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoProcessor

from agentic_video.families.qwen_vl_inputs import image_patches
from agentic_video.video.store import FrameStore
from benchmarks.gpu import measure
from benchmarks.gpu.actor import Actor, ActorSetting
from benchmarks.gpu.encoder import random_clip
from benchmarks.gpu.machine import alone
from benchmarks.gpu.sequences import make_sequence, noise, plan
from benchmarks.gpu.shapes import write_checkpoint
from tests.video.video_files import SPECS, make, number_in

FRAME = measure.TINY_FRAME
IMAGE_TOKENS = 8
"""Of a frame of the tiny Qwen2.5-VL: 112 x 56 pixels, 28 x 28 a token."""


def check_agreement(device: str, folder: Path, **parameters: Any) -> None:
    """In a process of its own, since verl changes the model's class."""
    small: dict[str, Any] = {"episodes": 2, "turns": 3, "images": 2, "words": 12, "says": 12}
    result = alone(partial(measure.agreement, folder, device, **{**small, **parameters}))
    assert result["tokens"] == 2 * 3 * 12 and result["images"] == 6
    assert result["agrees"], result


def scores(model: Path, device: str, dtype: str, fused: bool, steps: int) -> tuple[list[list[float]], list[float]]:
    """Log-probabilities of two episodes of different lengths before training, and their mean before and after it."""
    actor = Actor(ActorSetting(model, device, 1024, dtype=dtype, fused=fused, learning_rate=1e-3))
    try:
        episodes = [
            make_sequence(plan(tokens, 6, IMAGE_TOKENS + 2), actor.chat_format, FRAME, seed=tokens)
            for tokens in (240, 300)
        ]
        batch = actor.batch(episodes)
        old = actor.log_probs(batch)
        data = actor.with_targets(batch, old, [1.0, 1.0])
        metrics = [actor.update(data) for _ in range(steps)]
        assert all(np.isfinite(metric["grad_norm"]) and np.isfinite(metric["loss"]) for metric in metrics)
        new = actor.log_probs(batch)

        def mean(lists: list[Any]) -> float:
            kept = [values[torch.tensor(episode.mask) == 1] for values, episode in zip(lists, episodes, strict=True)]
            return float(torch.cat(kept).mean())

        return [item.tolist() for item in old], [mean(old), mean(new)]
    finally:
        actor.close()


def check_actor_update(device: str, folder: Path, dtype: str) -> None:
    """With verl's fused kernels the actor says and learns what it does without them."""
    model = write_checkpoint(folder / "tiny", "tiny", dtype=dtype)
    plain, learnt = alone(scores, model, device, dtype, False, 3)
    fused, learnt_fused = alone(scores, model, device, dtype, True, 3)
    assert learnt[1] > learnt[0] + 0.01 and learnt_fused[1] > learnt_fused[0] + 0.01
    tolerance = 1e-4 if dtype == "float32" else 0.05
    for values, others in zip(plain, fused, strict=True):
        np.testing.assert_allclose(values, others, rtol=0, atol=tolerance)
    assert abs(learnt[1] - learnt_fused[1]) < (1e-3 if dtype == "float32" else 0.05)


def check_vllm_turns(device: str, folder: Path, dtype: str) -> None:
    """New images in every turn: the old ones come from the prefix cache."""
    result = alone(
        partial(
            measure.vllm_turns,
            folder,
            device,
            model="tiny",
            images=[16, 8, 8],
            episodes=2,
            words=64,
            says=16,
            dtype=dtype,
            tokens=2048,
            batched_tokens=2048,
            eager=True,
            memory=0.2,
        )
    )
    # words, images and replies, one after the other: 64 + 16 * 10, then 16 + 64 + 8 * 10 more each turn
    assert [turn["prompt_tokens"] for turn in result["turns"]] == [224, 384, 544]
    assert result["turns"][0]["cached_share"] == 0.0
    assert [turn["old_tokens"] for turn in result["turns"]] == [0, 240, 400]
    # the last token of a reply isn't computed, and the cache knows whole blocks only
    block = result["block"]
    cached = [turn["cached_share"] * turn["prompt_tokens"] for turn in result["turns"][1:]]
    assert cached == pytest.approx([239 // block * block, 399 // block * block])
    assert result["kv_tokens"] > 2048


def check_patchify(device: str, folder: Path, model: str) -> None:
    """The image processor's patches, from frames of a size that has rows and columns of its own."""
    write_checkpoint(folder / model, model, dtype="float32")
    processor = AutoProcessor.from_pretrained(folder / model).image_processor
    frames = noise(3, (448, 224), seed=1)
    wanted = processor(images=frames, return_tensors="pt")["pixel_values"]
    made = torch.cat(
        list(image_patches(processor, {str(at): frame for at, frame in enumerate(frames)}, device).values())
    )
    assert made.device.type == device and made.dtype == torch.float32
    # a GPU may divide in another way: one unit in the last place
    torch.testing.assert_close(made.cpu(), wanted, rtol=0, atol=0 if device == "cpu" else 1e-6)


def check_encoder(device: str, folder: Path) -> None:
    """The retriever's encoder embeds frames as it does on a CPU, up to bfloat16."""
    here, _, side = random_clip(folder, "tiny", device)
    cpu, _, _ = random_clip(folder, "tiny", "cpu")
    frames = noise(5, (side, side))
    assert (here.identity == cpu.identity) == (device == "cpu")
    np.testing.assert_allclose(here.images(frames), cpu.images(frames), atol=2e-2)
    np.testing.assert_allclose(here.texts(["a red flash"]), cpu.texts(["a red flash"]), atol=2e-2)


def check_frame_store(folder: Path, device: str) -> None:
    """Decoding is the CPU's: with the device in use beside it, a store gives the frames that were asked for."""
    video = make(folder / "video.mp4", SPECS["h264_b_frames"])
    matrix = torch.rand(512, 512, device=device)
    store = FrameStore()
    try:
        for index in (0, 7, 3):
            matrix = matrix @ matrix / 256
            (frame,) = store.frames(str(video), [index])
            assert number_in(frame.image) == index
    finally:
        store.close()
    assert torch.isfinite(matrix).all()
