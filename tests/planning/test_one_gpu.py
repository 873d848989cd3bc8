"""The planner against what was measured on one GPU: the cells ``actor`` of benchmarks/gpu, as docs/gpu.md has them.

They are one process, one sequence an update, no engine; torch's allocator counts neither CUDA's context nor NCCL's
memory.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.planning import memory
from agentic_video.planning.job import Machines, RunSpec, job_of
from agentic_video.planning.plan import update_moments
from agentic_video.planning.rates import (
    Depth,
    MeasuredTurn,
    Parameters,
    Rate,
    actor_work,
    shipped,
    shipped_rates,
    turn_work,
)
from agentic_video.planning.shapes import published_shapes
from agentic_video.utils.units import GIB
from benchmarks.gpu.actor import ActorSetting
from tests.config.configs import composed

SEVEN, EIGHT = "Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen3-VL-8B-Instruct"
CELLS = [
    # model, layers, tokens, images, LoRA's rank; measured GiB that stay and at the peak; where the planner has the peak
    (SEVEN, 2, 16_384, 64, 0, 25.0, 41.7, "when the optimizer steps"),
    (SEVEN, 4, 16_384, 64, 0, 30.2, 50.4, "when the optimizer steps"),
    (SEVEN, 2, 24_576, 128, 0, 25.0, 43.1, "at a decoder layer"),
    (EIGHT, 4, 24_576, 128, 64, 5.0, 13.5, "at a decoder layer"),
]


def cell(model: str, layers: int, tokens: int, images: int, rank: int) -> RunSpec:
    """A cell's job: the recipe's config with the cell's overrides, the model cut to its depth, one sequence."""
    setting = ActorSetting(
        Path("/models/cell"), "cuda", tokens, fused=True, lora_rank=rank, attention="flash_attention_2"
    )
    config = composed("videozoomer", "cluster", *setting.overrides())
    job = job_of(config, Machines(1, 80 * GIB, 1024 * GIB, 1), model)
    shape = replace(job.shape, text=replace(job.shape.text, layers=layers))
    episode = replace(job.episode, overview_frames=images // 2, frames=images, width=448, height=224)
    episode = replace(episode, text_tokens=tokens - images * (job.frame_tokens + 12))
    return replace(job, shape=shape, episode=episode, questions=1, mini_batch=1, rollouts=1, longest=tokens)


@pytest.mark.parametrize(("model", "layers", "tokens", "images", "rank", "stays", "peak", "moment"), CELLS)
def test_what_was_measured_is_what_is_planned(
    model: str, layers: int, tokens: int, images: int, rank: int, stays: float, peak: float, moment: str
) -> None:
    job = cell(model, layers, tokens, images, rank)
    states = memory.weight_bytes(job.shape, job.precision) + memory.optimizer_bytes(job.shape, job.precision)
    assert states / GIB == pytest.approx(stays, rel=0.02)
    moments = {name: sum(parts.values()) / GIB for name, parts in update_moments(job).items()}
    assert max(moments, key=lambda name: moments[name]) == moment
    assert moments[moment] == pytest.approx(peak, rel=0.08)


def test_the_states_by_hand() -> None:
    """Two layers of 233,057,792 parameters, embedding and head of 544,997,376, the norm, and the tower: 12 bytes each
    with AdamW's moments, 20 with gradients and the step's lists."""
    shape = cell(SEVEN, 2, 16_384, 64, 0).shape
    count = 2 * 233_057_792 + 2 * 544_997_376 + 3584 + shape.tower
    assert (shape.parameters, shape.tower) == (count, 676_550_144)
    assert (12 * count / GIB, 20 * count / GIB) == (pytest.approx(25.0, abs=0.1), pytest.approx(41.6, abs=0.1))


def test_one_gpu_prefetches_nothing() -> None:
    layer = published_shapes()[SEVEN].layer
    assert (memory.gathered_bytes(layer, 1), memory.gathered_bytes(layer, 2)) == (2 * layer, 6 * layer)


def test_of_a_single_sequence_an_update_has_no_gradients_before_its_backward_pass() -> None:
    one = cell(SEVEN, 4, 16_384, 64, 0)
    assert not one.accumulates and replace(one, rollouts=2).accumulates
    first, second = update_moments(one), update_moments(replace(one, rollouts=2))
    whole = 4 * one.shape.parameters
    assert "gradients" not in first["at the output head"]
    # three of four layers when the first one's gradient is computed; the head's waits in the root unit
    assert first["at a decoder layer"]["gradients"] == 4 * 3 * one.shape.layer
    assert second["at the output head"]["gradients"] == second["at a decoder layer"]["gradients"] == whole
    assert first["when the optimizer steps"] == second["when the optimizer steps"]
    assert first["when the optimizer steps"]["gradients"] == whole


def test_a_frozen_head_gets_no_gradient() -> None:
    """LoRA: the fused head still computes each chunk's part of it, 151,936 x 4,096 in bfloat16, and adds them up no
    more."""
    job = cell(EIGHT, 4, 24_576, 128, 64)
    head = update_moments(job)["at the output head"]["logits and entropy"]
    assert head == 512 * 151_936 * 28 + 151_936 * 4096 * 2 + 24_576 * 4096 * 2


def test_the_kv_cache_of_a_fixed_size() -> None:
    """40 GB hold 697,536 tokens (docs/gpu.md, vLLM over turns), in blocks of 16."""
    assert 40_000_000_000 // memory.kv_bytes(published_shapes()[SEVEN].text) // 16 * 16 == 697_536


TIMED = [
    # run of rates.yaml, cell, planned over measured; the rates come from the first
    *((0, "actor-7b-16k-fused", 1.0, number) for number in (0, 1)),
    (1, "actor-7b-24k-fused", 0.94, 0),
    (1, "actor-qwen3-8b-24k-lora-fused", 0.76, 0),
    *((0, "vllm-7b-64", ratio, number) for number, ratio in enumerate((1.0, 0.94, 0.97))),
]


@pytest.mark.parametrize(("run", "name", "ratio", "number"), TIMED)
def test_seconds_that_were_measured_are_planned(run: int, name: str, ratio: float, number: int) -> None:
    """Rates of two depths of 16,384 tokens, and of a first turn, predict another GPU's updates and later turns."""
    facts, measured = shipped()["runs"][run]["facts"]["name"], shipped()["runs"][run]["cells"][name]
    (memory_rate,) = [size for known, size in shipped()["memory"].items() if known in facts]
    rates = replace(shipped_rates(), memory=Rate(memory_rate, "guessed", ""))
    parameters, result = Parameters(**measured["parameters"]), measured["result"]
    if "depths" in result:
        depth = Depth(**result["depths"][number])
        assert rates.seconds(actor_work(parameters, depth)) / depth.seconds == pytest.approx(ratio, abs=0.01)
    else:
        turns = [MeasuredTurn(**turn) for turn in result["turns"]]
        prompts, replies = turn_work(parameters, turns, number)
        planned = prompts / rates.engine.value + replies / memory_rate
        assert planned / turns[number].slowest == pytest.approx(ratio, abs=0.01)


def test_the_longer_cell_s_rate_predicts_the_shorter_one() -> None:
    """The other way round: the tower's rate of 128 frames on the H100, with the same decoder's, for 64 frames."""
    runs, rates = shipped()["runs"], shipped_rates()  # the H100's memory
    cells = {**runs[0]["cells"], **runs[1]["cells"]}
    depths = {
        name: Depth(**cells[name]["result"]["depths"][0]) for name in ("actor-7b-24k-fused", "actor-7b-16k-fused")
    }
    works = {name: actor_work(Parameters("qwen2.5-vl-7b", fused=True), depth) for name, depth in depths.items()}
    long, short = works.values()
    left = depths["actor-7b-24k-fused"].seconds - rates.seconds(replace(long, tower=0))
    tower = replace(rates, tower=Rate(long.tower / left, "measured", ""), memory=Rate(4.8e12, "guessed", ""))
    assert tower.seconds(short) / depths["actor-7b-16k-fused"].seconds == pytest.approx(1.06, abs=0.02)
