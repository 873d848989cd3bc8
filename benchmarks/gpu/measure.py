"""The cells' measurements: each a function of its parameters that returns plain data.

Tests call them with small parameters; :mod:`benchmarks.gpu.cells` says with which they are published.
"""

import asyncio
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agentic_video.rollout.tokens import ChatFormat
from benchmarks.gpu.actor import Actor, ActorSetting
from benchmarks.gpu.machine import Skip, alone, called, require, require_memory
from benchmarks.gpu.rollout import Rollout, RolloutSetting, Said
from benchmarks.gpu.sequences import Episode, Turn, make_sequence, noise, picture_tokens, plan
from benchmarks.gpu.shapes import FRAME, SHAPES, TINY, write_checkpoint
from benchmarks.gpu.sleeper import write_adapter

TINY_FRAME = (112, 56)
"""Width and height of the tiny models' frames, where their processors keep them."""


LIMITS = {"float32": (1e-4, 0.999), "bfloat16": (2e-2, 0.99)}
"""Highest mean difference of probabilities and lowest Pearson correlation of rollout and actor. float32's are those of
the end-to-end tests; bfloat16 has 8 bits, so that equal computations in another order differ by about 1 %."""
MOST_LOG = {"float32": 5e-3, "bfloat16": 1e-1}
"""Highest mean difference of log-probabilities."""
SPREAD = 2.0
"""Standard deviation of the logits of models that agreement is measured with."""


def checkpoint_of(
    scratch: Path, model: str, dtype: str, device: str, layers: int | None, vision_layers: int | None, **more: Any
) -> Path:
    """Write a checkpoint of random weights into the scratch folder, once."""
    parts = [
        model,
        dtype,
        *(str(depth) for depth in (layers, vision_layers) if depth),
        *(f"{k}-{v}" for k, v in more.items()),
    ]
    name = "-".join(parts)
    return write_checkpoint(
        scratch / "models" / name, model, layers=layers, vision_layers=vision_layers, dtype=dtype, device=device, **more
    )


def frame_of(model: str, chat_format: ChatFormat) -> tuple[int, int]:
    """Width and height of the frames that a model is shown: the nearest that its processor keeps."""
    return chat_format.rules.kept(*(TINY_FRAME if model in TINY else FRAME))


def compare(rollout: Sequence[float], actor: Sequence[float]) -> dict[str, float]:
    """Difference of two lists of log-probabilities of the same tokens, as verl's metrics have it
    (``training/rollout_probs_diff_*``, ``training/rollout_actor_probs_pearson_corr``).

    Random models give every token a small probability, so log-probabilities are compared too.
    """
    if not all(map(math.isfinite, [*rollout, *actor])):
        raise ValueError("a log-probability isn't finite")
    left, right = [math.exp(value) for value in rollout], [math.exp(value) for value in actor]
    differences = [abs(a - b) for a, b in zip(left, right, strict=True)]
    return {
        "tokens": len(differences),
        "mean": statistics.fmean(differences),
        "max": max(differences),
        "pearson": statistics.correlation(left, right),
        "pearson_log": statistics.correlation(rollout, actor),
        "mean_log": statistics.fmean(abs(a - b) for a, b in zip(rollout, actor, strict=True)),
    }


def agreement(
    scratch: Path,  # folder for checkpoints
    device: str,  # ``cuda`` or ``cpu``
    *,
    model: str,  # of :data:`SHAPES` or :data:`TINY`
    dtype: str,  # of both
    layers: int | None = None,  # of the language model
    vision_layers: int | None = None,  # of the vision tower
    episodes: int = 4,  # how many
    turns: int = 3,  # of each
    images: int = 8,  # frames of a turn
    words: int = 24,  # tokens of text shown in a turn
    says: int = 24,  # tokens of a reply
    fused: bool = False,  # verl's fused kernels in the actor
    woken: bool = False,  # as many episodes again, after the engine has slept at level 2 (not on a CPU) and woken
    memory: float = 0.4,  # share of the GPU that vLLM takes
) -> dict[str, Any]:
    """Score vLLM's own tokens, of episodes with images in every turn, with verl's actor of the same checkpoint.

    Returns:
        :func:`compare`'s figures; ``agrees``: whether they are within :data:`LIMITS` and :data:`MOST_LOG`.
    """
    require("vllm", "verl")
    if dtype == "float32":
        # cuDNN would compute convolutions (the patches' embedding) in TF32, which has 10 bits; also in vLLM's process.
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    folder = checkpoint_of(scratch, model, dtype, device, layers, vision_layers, vocabulary=False, spread=SPREAD)
    played_turns = [Turn(images, words, says)] * turns
    length = 2048 if model in TINY else 16_384
    rollout = Rollout(
        RolloutSetting(
            folder,
            device,
            dtype,
            tokens=length,
            batched_tokens=length,
            sequences=episodes,
            images=images * turns,
            memory=memory,
            sleeps=woken and device == "cuda",
        )
    )
    size = frame_of(model, rollout.chat_format)

    async def rounds() -> list[tuple[Episode, list[Said]]]:
        played = await rollout.play_all(played_turns, size, range(episodes))
        if woken:
            if device == "cuda":
                await rollout.sleep_and_wake(2)
            played += await rollout.play_all(played_turns, size, range(episodes, 2 * episodes))
        return played

    try:
        played = asyncio.run(rounds())
    finally:
        rollout.close()
    actor = Actor(ActorSetting(folder, device, length * 2, dtype=dtype, fused=fused))
    try:
        batch = actor.batch([episode for episode, _ in played])
        found = actor.log_probs(batch)
    finally:
        actor.close()
    said = [value for _, replies in played for reply in replies for value in reply.log_probs]
    scored = [
        float(value)
        for (episode, _), values in zip(played, found, strict=True)
        for value, kept in zip(values.tolist(), episode.mask, strict=True)
        if kept
    ]
    figures = compare(said, scored)
    mean, pearson = LIMITS[dtype]
    agrees = figures["mean"] < mean and figures["pearson_log"] > pearson and figures["mean_log"] < MOST_LOG[dtype]
    return {**figures, "agrees": agrees, "attention": actor.setting.attends_with, "images": images * turns}


def actor_update(
    scratch: Path,  # folder for checkpoints
    device: str,  # ``cuda`` or ``cpu``
    *,
    model: str,  # of :data:`SHAPES` or :data:`TINY`
    tokens: int,  # of a sequence
    images: int,  # of a sequence
    layers: Sequence[int],  # depths of the language model, the smallest first; those that don't fit are left out
    fused: bool = False,  # verl's fused kernels
    lora_rank: int = 0,  # 0 trains all weights
    dtype: str = "bfloat16",  # what it computes in
    vision_layers: int | None = None,  # depth of the vision tower; None: the whole
    sequences: int = 1,  # of a batch; each is a micro-batch
    steps: int = 2,  # timed steps, after one that isn't
    recipe: str = "videozoomer",  # whose ``cluster.yaml`` the settings are
    learning_rate: float = 1e-6,  # of AdamW
) -> dict[str, Any]:
    """Memory and time of an optimizer step on sequences of the papers' length, by depth of the model.

    Depths that don't fit are left out. Two depths give the cost of a layer (``agentic-video plan --calibrate``).
    """
    require("verl")
    depths: list[dict[str, Any]] = []
    problem = ""
    setting = ActorSetting(
        Path(),
        device,
        tokens,
        dtype=dtype,
        fused=fused,
        lora_rank=lora_rank,
        recipe=recipe,
        learning_rate=learning_rate,
    )
    # Each depth in a process of its own, so that nothing of one is left on the device when the next is measured.
    run = alone if len(layers) > 1 else called
    for depth in layers:
        try:
            depths.append(
                run(one_depth, scratch, device, model, depth, tokens, images, setting, vision_layers, sequences, steps)
            )
        except RuntimeError as error:  # torch's out-of-memory error is one
            if "out of memory" not in str(error).lower():
                raise
            problem = f"out of memory with {depth} layers"
            if not depths:
                raise Skip(f"{problem}: {str(error).splitlines()[0]}") from error
            break
    return {"depths": depths, "problem": problem}


def one_depth(
    scratch: Path,
    device: str,
    model: str,
    depth: int,
    tokens: int,
    images: int,
    setting: ActorSetting,
    vision_layers: int | None,
    sequences: int,
    steps: int,
) -> dict[str, Any]:
    """Measure one depth of :func:`actor_update`."""
    folder = checkpoint_of(scratch, model, setting.dtype, device, depth, vision_layers)
    actor = Actor(replace(setting, model=folder))
    try:
        size = frame_of(model, actor.chat_format)
        turns = plan(tokens, images, picture_tokens(actor.chat_format, size))
        made = [make_sequence(turns, actor.chat_format, size, seed) for seed in range(sequences)]
        batch = actor.batch(made)
        actor.forget_peak()
        started = time.perf_counter()
        old = actor.log_probs(batch)
        actor.synchronize()
        scoring = time.perf_counter() - started
        scoring_memory = actor.memory()
        data = actor.with_targets(batch, old, [1.0] * sequences)
        _, first = actor.timed_update(data)  # makes the optimizer's state, and compiles
        actor.forget_peak()
        resident = actor.memory().get("allocated")
        runs = [actor.timed_update(data) for _ in range(steps)]
        memory = actor.memory()
        new = actor.log_probs(batch)
    finally:
        actor.close()
    seconds = min(run[0] for run in runs)
    said = [[index for index, kept in enumerate(episode.mask) if kept] for episode in made]
    before, after = (
        statistics.fmean(float(values[index]) for values, kept in zip(lists, said, strict=True) for index in kept)
        for lists in (old, new)
    )
    result: dict[str, Any] = {
        "layers": depth,
        "tokens": tokens * sequences,
        "images": images * sequences,
        "seconds": seconds,
        "tokens_per_second": tokens * sequences / seconds,
        "scoring_seconds": scoring,
        "grad_norm": [run[1].get("grad_norm") for run in (runs[0], runs[-1])],
        "loss": [first.get("loss"), runs[-1][1].get("loss")],
        "mfu": runs[-1][1].get("mfu"),
        "log_prob": [before, after],
        "attention": setting.attends_with,
    }
    if memory:
        result |= {"resident": resident, **memory, "scoring_peak": scoring_memory["peak_allocated"]}
    return result


def pixel_waits(
    scratch: Path,  # folder for checkpoints and the video
    device: str,  # ``cuda`` or ``cpu``
    *,
    model: str,  # of :data:`SHAPES` or :data:`TINY`
    tokens: int,  # of a sequence, which is a micro-batch
    images: int,  # of a sequence
    layers: int,  # of the language model
    sequences: int = 4,  # of a pass
    dtype: str = "bfloat16",  # what it computes in
) -> dict[str, Any]:
    """Seconds of a step's passes, and for how many of them the actor waits for pixels of a frame store."""
    require("verl")
    from agentic_video.training.engines.pixels import shared_pixels
    from benchmarks.gpu.store import stored_frames

    folder = checkpoint_of(scratch, model, dtype, device, layers, None)
    actor = Actor(ActorSetting(folder, device, tokens, dtype=dtype, fused=True))
    try:
        size = frame_of(model, actor.chat_format)
        turns = plan(tokens, images, picture_tokens(actor.chat_format, size))
        made = [make_sequence(turns, actor.chat_format, size, seed) for seed in range(sequences)]
        batch = actor.batch(made)  # compiles, and makes the optimizer's state
        actor.update(actor.with_targets(batch, actor.log_probs(batch), [1.0] * sequences))
        with stored_frames(scratch / "video.mp4", sequences, images, size) as shown:
            batch = actor.batch(made, shown)
            rows: list[dict[str, Any]] = []

            def timed(name: str, run: Callable[[], Any]) -> Any:
                started, waited = time.perf_counter(), shared_pixels().waited
                result = run()
                actor.synchronize()
                seconds, waited = time.perf_counter() - started, shared_pixels().waited - waited
                rows.append({"pass": name, "seconds": seconds, "waited": waited})
                return result

            old = timed("log-probabilities", partial(actor.log_probs, batch))
            timed("update", partial(actor.update, actor.with_targets(batch, old, [1.0] * sequences)))
    finally:
        actor.close()
    share = sum(row["waited"] for row in rows) / sum(row["seconds"] for row in rows)
    return {"passes": rows, "share": share, "tokens": tokens * sequences, "images": images * sequences}


def vllm_turns(
    scratch: Path,  # folder for checkpoints
    device: str,  # ``cuda`` or ``cpu``
    *,
    model: str,  # of :data:`SHAPES` (vLLM's own random weights) or :data:`TINY`
    images: Sequence[int],  # new frames of each turn
    episodes: int,  # side by side; each has other frames
    words: int = 256,  # tokens of text shown in a turn
    says: int = 128,  # tokens of a reply
    layers: int | None = None,  # of the language model; None: all
    vision_layers: int | None = None,  # of the vision tower; None: all
    dtype: str = "bfloat16",  # of the weights
    memory: float = 0.6,  # share of the GPU that vLLM takes
    tokens: int = 53_248,  # most tokens of a sequence
    batched_tokens: int = 16_384,  # most tokens of a step
    eager: bool = False,  # no CUDA graphs
    needs_gib: float = 0.0,  # least free memory of the GPU
) -> dict[str, Any]:
    """Seconds and share of cached tokens in each turn of parallel episodes with many images."""
    require("vllm")
    require_memory(device, needs_gib)
    # Dummy weights of vLLM's CPU build give wrong image features; the tiny model is written anyway.
    dummy = model in SHAPES
    folder = checkpoint_of(scratch, model, dtype, device, layers, vision_layers, weights=not dummy)
    rollout = Rollout(
        RolloutSetting(
            folder,
            device,
            dtype,
            dummy=dummy,
            tokens=tokens,
            batched_tokens=batched_tokens,
            sequences=max(8, episodes),
            images=sum(images),
            memory=memory,
            eager=eager,
        )
    )
    size = frame_of(model, rollout.chat_format)
    try:
        kv, block = rollout.kv_tokens(), rollout.block()
        turns = [Turn(count, words, says) for count in images]

        async def warm_and_play() -> list[tuple[Episode, list[Said]]]:
            # A warm-up with frames of its own: compilation and tuning at the first request aren't measured.
            await rollout.play([Turn(1, words, 4)], size, 10_000)
            return await rollout.play_all(turns, size, range(episodes))

        # vLLM's engine belongs to the event loop of its first request, and dies with it.
        played = asyncio.run(warm_and_play())
    finally:
        rollout.close()
    count = picture_tokens(rollout.chat_format, size)
    prompt, old, rows = 0, 0, []
    for number, turn in enumerate(turns):
        prompt += turn.words + turn.images * count
        replies = [said[number] for _, said in played]
        rows.append(
            {
                "new_images": turn.images,
                "prompt_tokens": prompt,
                "old_tokens": old,
                "seconds": statistics.fmean(reply.seconds for reply in replies),
                "slowest": max(reply.seconds for reply in replies),
                "cached_share": statistics.fmean(reply.cached for reply in replies) / prompt,
            }
        )
        prompt += turn.says
        old = prompt
    return {
        "episodes": episodes,
        "image_tokens": count - 2,
        "turns": rows,
        "kv_tokens": kv,
        "block": block,
        "sequences_of_20k": kv / 20_000,
        "start_seconds": rollout.start_seconds,
    }


def sleep_and_wake(
    scratch: Path,  # folder for checkpoints
    device: str,  # ``cuda``; on a CPU there is no sleep, and the engine only answers twice
    *,
    model: str,  # of :data:`SHAPES` or :data:`TINY`
    lora_rank: int = 0,  # of an adapter with which it answers; 0 for none
    layers: int | None = None,  # of the language model
    vision_layers: int | None = None,  # of the vision tower
    dtype: str = "bfloat16",  # of the weights
    images: int = 4,  # frames that it is shown
    says: int = 16,  # tokens of a reply
    memory: float = 0.4,  # share of the GPU that vLLM takes
) -> dict[str, Any]:
    """Compare an engine's replies before and after sleep, with NaN in the memory that it gets back.

    verl's engines sleep while the trainer works: at level 2, and at level 1 where they serve adapters. On a CPU there
    is no sleep, and the engine only answers twice.
    """
    require("vllm")
    folder = checkpoint_of(scratch, model, dtype, device, layers, vision_layers, vocabulary=False, spread=SPREAD)
    adapter = write_adapter(scratch / f"{model}-adapter", folder, lora_rank) if lora_rank else None
    length = 2048 if model in TINY else 16_384
    sleeps = device == "cuda"
    rollout = Rollout(
        RolloutSetting(
            folder,
            device,
            dtype,
            tokens=length,
            batched_tokens=length,
            images=images,
            memory=memory,
            sleeps=sleeps,
            lora_rank=lora_rank,
        )
    )
    shown = make_sequence([Turn(images, 24, says)], rollout.chat_format, frame_of(model, rollout.chat_format))

    async def answers() -> tuple[list[Said], list[int]]:
        ask = partial(rollout.say, shown.prompt, shown.images, says)
        plain, before = await ask(), await ask(adapter=adapter)
        kept = await rollout.sleep_and_wake(1 if lora_rank else 2) if sleeps else []
        return [plain, before, await ask(adapter=adapter)], kept

    try:
        (plain, before, after), kept = asyncio.run(answers())
    finally:
        rollout.close()
    gaps = [abs(old - new) for old, new in zip(before.log_probs, after.log_probs, strict=True)]
    without = [abs(old - new) for old, new in zip(plain.log_probs, before.log_probs, strict=True)]
    return {
        "difference": max(gaps) if before.ids == after.ids else math.inf,
        "adapter": statistics.fmean(without),
        "lora_rank": lora_rank,
        "kept": kept,
        "slept": sleeps,
    }


def patchify_frames(
    scratch: Path, device: str, *, model: str, images: Sequence[int], size: tuple[int, int] = FRAME, repeats: int = 5
) -> dict[str, Any]:
    """Compare the patches that a rank of the trainer makes on its device with the image processor's on the CPU, of
    frames as a store has them: of the size that the processor keeps.

    Returns:
        ``counts``: by number of frames, seconds of ``processor`` and ``device`` (the copy to it included), and
        ``max_difference`` of the patches in float32.
    """
    import torch

    from agentic_video.families.qwen_vl_inputs import image_patches
    from agentic_video.families.registry import family_of, load_processor

    folder = checkpoint_of(scratch, model, "float32", "cpu", None, None)
    whole = load_processor(folder)
    processor, size = whole.image_processor, family_of(whole).rules(whole).kept(*size)
    rows = []
    for count in images:
        frames = {str(number): frame for number, frame in enumerate(noise(count, size))}
        slow, wanted = fastest(partial(processor, images=list(frames.values()), return_tensors="pt"), 2, "cpu")
        fast, found = fastest(partial(image_patches, processor, frames, device), repeats, device)
        reference, made = wanted["pixel_values"], torch.cat(list(found.values())).cpu()
        rows.append(
            {
                "images": count,
                "processor_seconds": slow,
                "device_seconds": fast,
                "max_difference": float((reference - made).abs().max()),
                "megabytes_uint8": sum(frame.nbytes for frame in frames.values()) / 1e6,
                "megabytes_patches": reference.nbytes / 1e6,
            }
        )
    return {"counts": rows, "size": list(size)}


def fastest(call: Callable[[], Any], repeats: int, device: str) -> tuple[float, Any]:
    """Seconds of the fastest of several calls after a warm-up, and the last result."""
    import torch

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    made = call()
    seconds = []
    for _ in range(repeats):
        wait()
        started = time.perf_counter()
        made = call()
        wait()
        seconds.append(time.perf_counter() - started)
    return min(seconds), made


def each(function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Call a function on each part."""
    return [function(part) for part in parts]


def encoder_batches(
    scratch: Path,  # folder for checkpoints
    device: str,  # ``cuda`` or ``cpu``
    *,
    model: str,  # ``tiny``: the toy world's, untrained. Else one of open_clip's names, built with random weights
    batches: Sequence[int],  # batch sizes
    frames: int = 128,  # encoded at each
    size: tuple[int, int] = FRAME,  # width and height that frames come in; the encoder asks for its own
) -> dict[str, Any]:
    """Frames a second of the encoder that finds frames by text, by batch size."""
    require("open_clip")
    import torch

    from benchmarks.gpu.encoder import random_clip

    encoder, network, side = random_clip(scratch / "clip", model, device)
    wanted = encoder.frame_size(*size)
    shown = noise(frames, wanted)
    rows = []
    for batch in batches:
        parts = [shown[at : at + batch] for at in range(0, frames, batch)]
        seconds, _ = fastest(partial(each, encoder.images, parts), 1, device)
        pixels = torch.rand(batch, 3, side, side, device=device)
        with encoder.computing():
            alone, _ = fastest(partial(network.encode_image, pixels, normalize=True), 3, device)
        rows.append({"batch": batch, "frames_per_second": frames / seconds, "network_per_second": batch / alone})
    return {
        "batches": rows,
        "model": model,
        "size": list(wanted),
        "parameters": sum(p.numel() for p in network.parameters()),
    }
