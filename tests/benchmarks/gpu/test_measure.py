"""What tests/gpu and benchmarks/gpu do on a GPU, small and on the CPU."""

import math
from pathlib import Path

import pytest
import torch

from agentic_video.utils.environment import LAPTOP_ENV
from benchmarks.gpu import measure
from benchmarks.gpu.actor import ActorSetting
from benchmarks.gpu.machine import Skip, find_device, require, require_memory
from tests.gpu import checks


@pytest.fixture
def laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LAPTOP_ENV.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("model", ["tiny", "tiny-qwen3_vl"])
def test_frames_become_the_processor_s_patches(tmp_path: Path, model: str) -> None:
    checks.check_patchify("cpu", tmp_path, model)


def test_the_encoder_embeds_alike_when_it_is_loaded_twice(tmp_path: Path) -> None:
    checks.check_encoder("cpu", tmp_path)


def test_the_frame_store_is_unaffected(tmp_path: Path) -> None:
    checks.check_frame_store(tmp_path, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fused_kernels_change_nothing(tmp_path: Path, laptop: None, dtype: str) -> None:
    checks.check_actor_update("cpu", tmp_path, dtype)


@pytest.mark.slow
def test_rollout_and_actor_agree(tmp_path: Path, laptop: None) -> None:
    checks.check_agreement("cpu", tmp_path, model="tiny", dtype="float32")


@pytest.mark.slow
def test_vllm_knows_the_turns_before(tmp_path: Path, laptop: None) -> None:
    checks.check_vllm_turns("cpu", tmp_path, "float32")


def test_agreement_by_hand() -> None:
    rollout = [math.log(0.5), math.log(0.25), math.log(0.1)]
    actor = [math.log(0.4), math.log(0.25), math.log(0.2)]
    found = measure.compare(rollout, actor)
    assert found["tokens"] == 3 and found["mean"] == pytest.approx(0.2 / 3) and found["max"] == pytest.approx(0.1)
    assert found["mean_log"] == pytest.approx((math.log(0.5 / 0.4) + math.log(2)) / 3)
    # deviations of 0.2167, -0.0333, -0.1833 and 0.1167, -0.0333, -0.0833: 0.04167 / sqrt(0.08167 * 0.02167)
    assert found["pearson"] == pytest.approx(0.99053, abs=1e-5)
    with pytest.raises(ValueError, match="finite"):
        measure.compare([float("nan"), 0.0], [0.0, 0.0])


def test_the_whole_model_is_reckoned_from_two_depths() -> None:
    # A layer takes 1 s, 10 bytes that stay and 5 that don't; the rest 3 s, 100 and 50.
    depths = [
        {"layers": n, "tokens": 60, "seconds": 3.0 + n, "resident": 100 + 10 * n, "peak_allocated": 150 + 15 * n}
        for n in (2, 4)
    ]
    whole = measure.whole_model("qwen2.5-vl-7b", depths, 16, 30.0)
    assert whole["layers"] == 28 and whole["seconds"] == pytest.approx(31.0)
    assert whole["resident"] == pytest.approx((100 + 280) / 16)
    assert whole["step"] == pytest.approx((150 + 15 * 28) / 16) == whole["peak"]  # all of it is shared
    assert whole["tokens_per_second"] == pytest.approx(60 / 31)
    assert whole["parameters"] == pytest.approx(8.29e9, rel=1e-3)  # as the model's page says
    assert measure.whole_model("qwen2.5-vl-7b", depths, 16, 40.0)["peak"] == 40.0


def test_what_was_measured_is_the_optimizer_s_step() -> None:
    """Weights, two moments, gradients and AdamW's own: five times float32, of 2.23 and 2.70 billion parameters."""
    for layers, peak in ((2, 41.7), (4, 50.4)):
        count = measure.sum_of(measure.parameters("qwen2.5-vl-7b"), layers)
        assert 5 * 4 * count / 2**30 == pytest.approx(peak, abs=0.15)


def test_the_whole_model_s_activations_are_the_planner_s(tmp_path: Path) -> None:
    """One sequence of 16,384 tokens with 64 frames on 16 GPUs: less than what one GPU showed beside two layers."""
    setting = ActorSetting(tmp_path, "cuda", 16_384, fused=True, attention="flash_attention_2")
    found = measure.planned_activations(setting, "qwen2.5-vl-7b", 64, 16) / 2**30
    states = 16 * 8_292_166_656 / 16 / 2**30  # weights, gradients and moments
    # each layer's input in bfloat16 alone is 28 * 16,384 * 3,584 * 2 bytes, 3.1 GiB
    assert states * 0.7 + 3.1 < found < states + 20
    longer = ActorSetting(tmp_path, "cuda", 32_768, fused=True, attention="flash_attention_2")
    assert measure.planned_activations(longer, "qwen2.5-vl-7b", 128, 16) / 2**30 > found + 5


def test_what_is_missing_skips_a_cell() -> None:
    require("torch")
    require_memory("cpu", 1e9)
    with pytest.raises(Skip, match="no_such_module isn't installed"):
        require("torch", "no_such_module")
    assert find_device("cpu")["device"] == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises(Skip, match=r"sees no GPU .* driver of 580"):
            find_device("cuda")


@pytest.mark.parametrize("recipe", ["videozoomer", "videobrain"])
def test_the_actor_s_config_is_the_recipe_s(recipe: str, tmp_path: Path) -> None:
    setting = ActorSetting(
        tmp_path, "cuda", 4096, fused=True, lora_rank=8, recipe=recipe, attention="flash_attention_2"
    )
    config = setting.config()
    assert (config.actor.strategy, config.actor.ppo_max_token_len_per_gpu) == ("fsdp2", 4096)
    assert config.model.use_fused_kernels and config.model.use_remove_padding and config.model.lora_rank == 8
    assert config.model.override_config.attn_implementation == "flash_attention_2"
    assert config.actor.fsdp_config.mixed_precision.param_dtype == "bf16"
    model = tmp_path / "a model, (1)=[x]"
    plain = ActorSetting(model, "cpu", 4096, recipe=recipe).config()
    assert plain.model.path == str(model)
    assert not plain.model.use_remove_padding and not plain.actor.fsdp_config.use_torch_compile
