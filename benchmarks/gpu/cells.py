"""The measured cells: each is a measurement with its parameters, and what has to hold for it to pass."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu import measure, toyworld
from benchmarks.gpu.shapes import TINY

Result = Mapping[str, Any]
Check = Callable[[Result], str]
"""The problem of a result; empty if it is as it must be."""


OTHERS = [name for name in TINY if name != "tiny"]
"""Tiny models of the further families."""
LIMIT_S = 300.0
"""Default time limit of a cell."""


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    name: str  # of the cell; what comes before the first ``-`` is its group
    make: Callable[..., dict[str, Any]]  # called with a scratch folder, the device and ``parameters``
    parameters: Mapping[str, Any]  # plain data
    check: Check = field(default=lambda result: "")  # whether the result is as it must be
    seconds: float = LIMIT_S  # time limit
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


def hardly_waits(result: Result) -> str:
    """A step waits for pixels less than a fiftieth of its passes."""
    return "" if result["share"] < 0.02 else f"{result['share']:.1%} of the passes are waits for pixels"


def patchify_cells() -> list[Cell]:
    """Cells of :func:`measure.patchify_frames`; the last two have sizes that the processors don't keep as they are."""
    each: Mapping[str, Mapping[str, Any]] = {
        "qwen2.5": {"model": "tiny", "images": [64, 128]},
        "qwen3": {"model": "tiny-qwen3_vl", "images": [64, 128]},
        "640x360-qwen2.5": {"model": "tiny", "images": [64], "size": [640, 360]},
        "288x160-qwen3": {"model": "tiny-qwen3_vl", "images": [64], "size": [288, 160]},
    }
    return [Cell(f"patchify-{name}", measure.patchify_frames, keys, equal_patches) for name, keys in each.items()]


def encoder_cell(name: str, model: str, batches: Sequence[int], **parameters: Any) -> Cell:
    """A cell of :func:`measure.encoder_batches`."""
    return Cell(f"encoder-{name}", measure.encoder_batches, {"model": model, "batches": list(batches), **parameters})


def sleep_cell(name: str, **parameters: Any) -> Cell:
    """A cell of :func:`measure.sleep_and_wake`."""
    return Cell(f"sleep-{name}", measure.sleep_and_wake, parameters, wakes_as_it_slept)


def actor_cell(name: str, seconds: float = LIMIT_S, long: bool = False, **parameters: Any) -> Cell:
    """A cell of :func:`measure.actor_update`."""
    return Cell(f"actor-{name}", measure.actor_update, parameters, learns, seconds, long)


FIRST: Mapping[str, str] = {
    "sleep-tiny-qwen3_vl": "deepstack inputs after sleep level 2: if they differ, it needs free_cache_engine=False",
    "agreement-woken-qwen3_vl-bfloat16": "the same against the actor: a first step may agree and all later ones not",
    "agreement-woken-bfloat16": "Qwen2.5-VL likewise: if it differs, run with rollout.free_cache_engine=False",
    "sleep-tiny-lora": "an adapter after waking: if it is lost, LoRA runs need free_cache_engine=False",
    "patchify-640x360-qwen2.5": "if patches differ, the trainer must make them on the CPU",
    "patchify-288x160-qwen3": "the same for Qwen3-VL, whose processor enlarges small frames",
    "pixels-7b-24k": "above 2 %: look at perf/wait_pixels_s before booking more GPUs",
    "actor-7b-52k-fused": "whether VideoZoomer's longest micro-batch fits, and at how many tokens a second",
}
"""The first quarter of an hour of a GPU, in this order, and what each result decides."""


def vllm_cell(name: str, seconds: float = LIMIT_S, long: bool = False, **parameters: Any) -> Cell:
    """A cell of :func:`measure.vllm_turns`."""
    return Cell(f"vllm-{name}", measure.vllm_turns, parameters, reuses_prefix, seconds, long)


LENGTHS = ((16_384, 64), (24_576, 128), (32_768, 128), (53_248, 128))
"""Tokens and images of a sequence. 53,248: VideoZoomer's ``max_model_len``; EVA, FrameThinker, FrameMind and VideoBrain
are between 16 and 40 thousand (docs/fidelity.md)."""


def actor_cells(layers: Sequence[int]) -> list[Cell]:
    """Cells of :func:`measure.actor_update`; ``layers`` are depths of the 7B model that trains all weights."""
    trained: dict[str, Any] = {"model": "qwen2.5-vl-7b", "layers": list(layers), "learning_rate": 1e-4}
    cells = [
        actor_cell(
            f"7b-{tokens // 1024}k{'-fused' if fused else ''}",
            long=tokens in (24_576, 32_768) and not fused,
            **trained,
            tokens=tokens,
            images=images,
            fused=fused,
        )
        for tokens, images in LENGTHS
        for fused in (False, True)
    ]
    lora: dict[str, Any] = {"fused": True, "lora_rank": 64, "learning_rate": 1e-4, "tokens": 24_576, "images": 128}
    return [
        *cells,
        actor_cell("7b-24k-lora-fused", 420.0, True, model="qwen2.5-vl-7b", layers=[28], **lora),
        actor_cell("qwen3-8b-24k-lora-fused", 420.0, model="qwen3-vl-8b", layers=[4], **lora),
    ]


def cuda_cells(layers: Sequence[int] = (2, 4)) -> list[Cell]:
    """Cells of a GPU, the quick and certain ones first."""
    small = {"layers": 2, "vision_layers": 8}
    real = {**small, "images": 8}
    many: dict[str, Any] = {"episodes": 8, "needs_gib": 40.0}
    waits = {"tokens": 24_576, "images": 128, "layers": 2}
    return [
        *patchify_cells(),
        encoder_cell("tiny", "tiny", [8, 32, 128]),
        encoder_cell("siglip2", "ViT-B-16-SigLIP2", [8, 32, 128]),
        agreement_cell("tiny-float32", model="tiny", dtype="float32"),
        agreement_cell("tiny-bfloat16", model="tiny", dtype="bfloat16"),
        agreement_cell("tiny-bfloat16-fused", model="tiny", dtype="bfloat16", fused=True),
        *(agreement_cell(f"{name}-bfloat16", model=name, dtype="bfloat16") for name in OTHERS),
        agreement_cell("7b-bfloat16", model="qwen2.5-vl-7b", dtype="bfloat16", **real),
        agreement_cell("7b-float32", model="qwen2.5-vl-7b", dtype="float32", **real),
        agreement_cell("qwen3-8b-bfloat16", model="qwen3-vl-8b", dtype="bfloat16", **real),
        agreement_cell("qwen3-8b-float32", model="qwen3-vl-8b", dtype="float32", **real),
        agreement_cell("woken-bfloat16", model="tiny", dtype="bfloat16", woken=True),
        agreement_cell("woken-qwen3_vl-bfloat16", model="tiny-qwen3_vl", dtype="bfloat16", woken=True),
        sleep_cell("tiny", model="tiny"),
        *(sleep_cell(name, model=name) for name in OTHERS),
        sleep_cell("tiny-lora", model="tiny", lora_rank=8),
        sleep_cell("qwen3-8b-lora", model="qwen3-vl-8b", lora_rank=8, **small),
        Cell("toyworld-videozoomer", toyworld.toyworld_run, {"steps": 3}, job_agrees, seconds=540.0),
        *actor_cells(layers),
        Cell("pixels-7b-24k", measure.pixel_waits, {"model": "qwen2.5-vl-7b", **waits}, hardly_waits),
        vllm_cell("7b-64", 420.0, model="qwen2.5-vl-7b", images=[64, 32, 32], **many),
        vllm_cell("7b-128", 420.0, True, model="qwen2.5-vl-7b", images=[128, 64, 64], **many),
        vllm_cell("qwen3-8b-64", 420.0, True, model="qwen3-vl-8b", images=[64, 32, 32], **many),
    ]


def cpu_cells() -> list[Cell]:
    """The same measurements, small: they try the code and say nothing about a GPU."""
    small: dict[str, Any] = {"episodes": 2, "images": 2, "words": 12, "says": 12}
    actor: dict[str, Any] = {"model": "tiny", "tokens": 512, "images": 6}
    depths: dict[str, Any] = {"layers": [2, 4], "learning_rate": 1e-3}
    turns: dict[str, Any] = {"images": [16, 8, 8], "episodes": 2, "words": 64, "says": 16, "tokens": 2048}
    return [
        *patchify_cells(),
        encoder_cell("tiny", "tiny", [8, 32], frames=64),
        encoder_cell("siglip2", "ViT-B-16-SigLIP2", [4], frames=8),
        agreement_cell("tiny-float32", model="tiny", dtype="float32", **small),
        agreement_cell("tiny-float32-fused", model="tiny", dtype="float32", fused=True, **small),
        agreement_cell("tiny-qwen3_vl-float32-fused", model="tiny-qwen3_vl", dtype="float32", fused=True, **small),
        *(agreement_cell(f"{name}-float32", model=name, dtype="float32", **small) for name in OTHERS),
        agreement_cell("tiny-bfloat16", model="tiny", dtype="bfloat16", **small),
        agreement_cell(
            "7b-float32", model="qwen2.5-vl-7b", dtype="float32", layers=1, vision_layers=1, turns=2, **small
        ),
        sleep_cell("tiny-lora", model="tiny", lora_rank=8, dtype="float32"),
        agreement_cell("woken-float32", model="tiny", dtype="float32", woken=True, **small),
        actor_cell("tiny", dtype="float32", **actor, **depths),
        # passes of a tenth of a second: too short for a verdict
        Cell("pixels-tiny", measure.pixel_waits, {**actor, "layers": 2, "dtype": "float32"}),
        actor_cell("tiny-fused", dtype="float32", fused=True, **actor, **depths),
        actor_cell("tiny-lora-fused", dtype="float32", fused=True, lora_rank=8, **actor, **depths),
        actor_cell("tiny-bfloat16", dtype="bfloat16", **actor, **depths),
        vllm_cell("tiny", model="tiny", dtype="float32", batched_tokens=2048, eager=True, **turns),
        Cell("toyworld-videozoomer", toyworld.toyworld_run, {"steps": 2}, job_agrees, seconds=900.0, long=True),
    ]


def cells_for(device: str, layers: Sequence[int] = (2, 4)) -> list[Cell]:
    """The cells of a kind of device, in the order in which they are run."""
    return cuda_cells(layers) if device == "cuda" else cpu_cells()
