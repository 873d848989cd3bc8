"""The measured cells: each is a measurement with its parameters, and what has to hold for it to pass."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu import measure, toyworld

Result = Mapping[str, Any]
Check = Callable[[Result], str]
"""The problem of a result; empty if it is as it must be."""


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    name: str  # of the cell; what comes before the first ``-`` is its group
    make: Callable[..., dict[str, Any]]  # called with a scratch folder, the device and ``parameters``
    parameters: Mapping[str, Any]  # plain data
    check: Check = field(default=lambda result: "")  # whether the result is as it must be
    seconds: float = 300.0  # time limit
    long: bool = False  # only with ``--full``

    @property
    def group(self) -> str:
        """The table that it is a row of."""
        return self.name.partition("-")[0]


def agrees(result: Result) -> str:
    """Rollout and actor give the same probabilities."""
    if result["agrees"]:
        return ""
    log = f"of logarithms {result['mean_log']:.2g}"
    return f"rollout and actor differ: mean {result['mean']:.2g}, {log}, Pearson {result['pearson_log']:.5f}"


def learns(result: Result) -> str:
    """Losses and gradients are finite, and rewarded tokens became more likely."""
    for depth in result["depths"]:
        values = [*depth["loss"], *depth["grad_norm"], *depth["log_prob"]]
        if not all(value is not None and math.isfinite(value) for value in values):
            return f"{depth['layers']} layers: a loss or a gradient isn't finite: {values}"
        if depth["log_prob"][1] <= depth["log_prob"][0]:
            return f"{depth['layers']} layers: what was rewarded became less likely: {depth['log_prob']}"
    return ""


def equal_patches(result: Result) -> str:
    """In bfloat16, which the model gets, the patches are the processor's but for rounding."""
    worst = max(row["max_difference"] for row in result["counts"])
    return "" if worst < 1e-5 else f"patches differ from the processor's by {worst:.2g}"


def reuses_prefix(result: Result) -> str:
    """From the second turn on, the whole blocks of what was there before are in the cache, but for a tenth.

    The last token of a reply isn't among them: what it computes would be needed for a next one only.
    """
    for number, turn in enumerate(result["turns"][1:], start=2):
        known = (turn["old_tokens"] - 1) // result["block"] * result["block"]
        cached = turn["cached_share"] * turn["prompt_tokens"]
        if cached < 0.9 * known:
            return f"turn {number}: {cached:.0f} tokens came from the cache, {known} could have"
    return ""


def wakes_as_it_slept(result: Result) -> str:
    """The engine answers as before it slept, with its adapter where it has one."""
    if result["lora_rank"] and result["adapter"] < 1e-2:
        return f"the adapter changes log-probabilities by {result['adapter']:.2g} only"
    if not result["difference"] < 1e-1:
        return f"after waking log-probabilities differ by {result['difference']:.2g}"
    return ""


def job_agrees(result: Result) -> str:
    """The job's own metrics of rollout and actor."""
    mean, pearson = measure.LIMITS["bfloat16" if result["profile"] == "cluster" else "float32"]
    if result["difference"] < mean and result["pearson"] > pearson:
        return ""
    return f"rollout and actor differ: mean {result['difference']:.2g}, Pearson {result['pearson']:.5f}"


def agreement_cell(name: str, **parameters: Any) -> Cell:
    """A cell of :func:`measure.agreement`."""
    return Cell(f"agreement-{name}", measure.agreement, parameters, agrees)


LENGTHS = ((16_384, 64), (24_576, 128), (32_768, 128), (53_248, 128))
"""Tokens and images of a sequence. 53,248: VideoZoomer's ``max_model_len``; EVA, FrameThinker, FrameMind and VideoBrain
are between 16 and 40 thousand (docs/fidelity.md)."""


def actor_cells(layers: Sequence[int]) -> list[Cell]:
    """Cells of :func:`measure.actor_update`; ``layers`` are depths of the 7B model that trains all weights."""
    cells = []
    for tokens, images in LENGTHS:
        for fused in (False, True):
            name = f"actor-7b-{tokens // 1024}k{'-fused' if fused else ''}"
            parameters = {"model": "qwen2.5-vl-7b", "tokens": tokens, "images": images, "layers": list(layers)}
            cells.append(
                Cell(
                    name,
                    measure.actor_update,
                    {**parameters, "fused": fused, "learning_rate": 1e-4},
                    learns,
                    long=tokens in (24_576, 32_768) and not fused,
                )
            )
    lora = {"fused": True, "lora_rank": 64, "learning_rate": 1e-4}
    for name, model, depth in (("7b", "qwen2.5-vl-7b", 28), ("qwen3-8b", "qwen3-vl-8b", 4)):
        cells.append(
            Cell(
                f"actor-{name}-24k-lora-fused",
                measure.actor_update,
                {"model": model, "tokens": 24_576, "images": 128, "layers": [depth], **lora},
                learns,
                seconds=420.0,
                long=depth > 4,
            )
        )
    return cells


def cuda_cells(layers: Sequence[int] = (2, 4)) -> list[Cell]:
    """Cells of a GPU, the quick and certain ones first."""
    real = {"layers": 2, "vision_layers": 8, "images": 8}
    return [
        Cell("patchify-qwen2.5", measure.patchify_frames, {"model": "tiny", "images": [64, 128]}, equal_patches),
        Cell("patchify-qwen3", measure.patchify_frames, {"model": "tiny-qwen3", "images": [64, 128]}, equal_patches),
        Cell("encoder-tiny", measure.encoder_batches, {"model": "tiny", "batches": [8, 32, 128]}),
        Cell("encoder-siglip2", measure.encoder_batches, {"model": "ViT-B-16-SigLIP2", "batches": [8, 32, 128]}),
        agreement_cell("tiny-float32", model="tiny", dtype="float32"),
        agreement_cell("tiny-bfloat16", model="tiny", dtype="bfloat16"),
        agreement_cell("tiny-bfloat16-fused", model="tiny", dtype="bfloat16", fused=True),
        agreement_cell("tiny-qwen3-bfloat16", model="tiny-qwen3", dtype="bfloat16"),
        agreement_cell("7b-bfloat16", model="qwen2.5-vl-7b", dtype="bfloat16", **real),
        agreement_cell("7b-float32", model="qwen2.5-vl-7b", dtype="float32", **real),
        agreement_cell("qwen3-8b-bfloat16", model="qwen3-vl-8b", dtype="bfloat16", **real),
        agreement_cell("qwen3-8b-float32", model="qwen3-vl-8b", dtype="float32", **real),
        Cell("sleep-tiny", measure.sleep_and_wake, {"model": "tiny"}, wakes_as_it_slept),
        Cell("sleep-tiny-qwen3", measure.sleep_and_wake, {"model": "tiny-qwen3"}, wakes_as_it_slept),
        Cell("sleep-tiny-lora", measure.sleep_and_wake, {"model": "tiny", "lora_rank": 8}, wakes_as_it_slept),
        Cell(
            "sleep-qwen3-8b-lora",
            measure.sleep_and_wake,
            {"model": "qwen3-vl-8b", "lora_rank": 8, "layers": 2, "vision_layers": 8},
            wakes_as_it_slept,
        ),
        Cell("toyworld-videozoomer", toyworld.toyworld_run, {"steps": 3}, job_agrees, seconds=540.0),
        *actor_cells(layers),
        Cell(
            "vllm-7b-64",
            measure.vllm_turns,
            {"model": "qwen2.5-vl-7b", "images": [64, 32, 32], "episodes": 8, "needs_gib": 40.0},
            reuses_prefix,
            seconds=420.0,
        ),
        Cell(
            "vllm-7b-128",
            measure.vllm_turns,
            {"model": "qwen2.5-vl-7b", "images": [128, 64, 64], "episodes": 8, "needs_gib": 40.0},
            reuses_prefix,
            seconds=420.0,
            long=True,
        ),
        Cell(
            "vllm-qwen3-8b-64",
            measure.vllm_turns,
            {"model": "qwen3-vl-8b", "images": [64, 32, 32], "episodes": 8, "needs_gib": 40.0},
            reuses_prefix,
            seconds=420.0,
            long=True,
        ),
    ]


def cpu_cells() -> list[Cell]:
    """The same measurements, small: they try the code and say nothing about a GPU."""
    small = {"episodes": 2, "images": 2, "words": 12, "says": 12}
    actor = {"model": "tiny", "tokens": 512, "images": 6, "layers": [2, 4], "dtype": "float32", "learning_rate": 1e-3}
    return [
        Cell("patchify-qwen2.5", measure.patchify_frames, {"model": "tiny", "images": [64, 128]}, equal_patches),
        Cell("patchify-qwen3", measure.patchify_frames, {"model": "tiny-qwen3", "images": [64, 128]}, equal_patches),
        Cell("encoder-tiny", measure.encoder_batches, {"model": "tiny", "batches": [8, 32], "frames": 64}),
        Cell("encoder-siglip2", measure.encoder_batches, {"model": "ViT-B-16-SigLIP2", "batches": [4], "frames": 8}),
        agreement_cell("tiny-float32", model="tiny", dtype="float32", **small),
        agreement_cell("tiny-float32-fused", model="tiny", dtype="float32", fused=True, **small),
        agreement_cell("tiny-qwen3-float32-fused", model="tiny-qwen3", dtype="float32", fused=True, **small),
        agreement_cell("tiny-bfloat16", model="tiny", dtype="bfloat16", **small),
        agreement_cell(
            "7b-float32", model="qwen2.5-vl-7b", dtype="float32", layers=1, vision_layers=1, turns=2, **small
        ),
        Cell(
            "sleep-tiny-lora",
            measure.sleep_and_wake,
            {"model": "tiny", "lora_rank": 8, "dtype": "float32"},
            wakes_as_it_slept,
        ),
        Cell("actor-tiny", measure.actor_update, actor, learns),
        Cell("actor-tiny-fused", measure.actor_update, {**actor, "fused": True}, learns),
        Cell("actor-tiny-lora-fused", measure.actor_update, {**actor, "fused": True, "lora_rank": 8}, learns),
        Cell("actor-tiny-bfloat16", measure.actor_update, {**actor, "dtype": "bfloat16"}, learns),
        Cell(
            "vllm-tiny",
            measure.vllm_turns,
            {
                "model": "tiny",
                "images": [16, 8, 8],
                "episodes": 2,
                "words": 64,
                "says": 16,
                "dtype": "float32",
                "tokens": 2048,
                "batched_tokens": 2048,
                "eager": True,
            },
            reuses_prefix,
        ),
        Cell("toyworld-videozoomer", toyworld.toyworld_run, {"steps": 2}, job_agrees, seconds=900.0, long=True),
    ]


def cells_for(device: str, layers: Sequence[int] = (2, 4)) -> list[Cell]:
    """The cells of a kind of device, in the order in which they are run."""
    return cuda_cells(layers) if device == "cuda" else cpu_cells()
