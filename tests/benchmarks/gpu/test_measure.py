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
