"""What verl hands to vLLM of a model with LoRA adapters under FSDP2, with fused kernels as the profile ``single`` has
it: the adapters, or merged weights."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.distributed.fsdp import CPUOffloadPolicy

from agentic_video.families.registry import family_of
from agentic_video.training.engines.actor import VideoEngine
from tests.planning.models import TINY, features_of, model_of
from tests.training.test_fused_head import batch, computed, forwards, gradients, sharded  # noqa: F401

RANK, ALPHA = 4, 8
LAYER = "model.language_model.layers.0.self_attn.q_proj"


@pytest.mark.usefixtures("one_rank", "forwards")
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("family", TINY)
def test_adapters_and_merged_weights(family: str, streamed: bool, tmp_path: Path) -> None:
    """Merged weights are base + alpha / rank * B @ A, under the model's own names, and the base is put back."""
    import verl.utils.fsdp_utils as fsdp_utils

    offload = CPUOffloadPolicy(pin_memory=False) if streamed else None
    torch.manual_seed(0)
    base = model_of(TINY[family]).state_dict()
    fused = family_of(family).fused
    model = sharded(family, fused=fused, lora=True, offload=offload)
    adapted = 2 * (6 if family == "glm4v" else 7) * TINY[family].text.layers  # GLM's MLP has two matrices
    assert len(gradients(model, batch(family), fused=fused)) == adapted

    adapters = fsdp_utils.collect_lora_params(module=model, layered_summon=False, base_sync_done=True)
    assert len(adapters) == adapted
    assert not [name for name in adapters if "visual" in name or "vision" in name]
    low, high = (adapters[f"base_model.model.{LAYER}.lora_{part}.weight"] for part in "AB")
    assert low.shape == (RANK, TINY[family].text.hidden)

    with fsdp_utils.merged_lora_context(model, backup_adapters=True):
        merged = {
            name: item.full_tensor().clone()
            for name, item in fsdp_utils.normalize_peft_param_name(model.state_dict()).items()
        }
    assert merged.keys() == base.keys()
    torch.testing.assert_close(merged[f"{LAYER}.weight"], base[f"{LAYER}.weight"] + ALPHA / RANK * high @ low)
    for name, item in fsdp_utils.normalize_peft_param_name(model.state_dict()).items():
        assert torch.equal(item.full_tensor(), base[name]), name


@pytest.mark.usefixtures("one_rank", "forwards")
def test_the_reference_model_is_the_model_with_its_adapters_off() -> None:
    inputs = batch("qwen2_5_vl")
    adapted = sharded("qwen2_5_vl", fused=True, lora=True)
    with torch.no_grad():
        (mine, _) = computed(adapted, inputs, fused=True)
        with adapted.disable_adapter():
            (off, _) = computed(adapted, inputs, fused=True)
        (alone, _) = computed(sharded("qwen2_5_vl", fused=True), inputs, fused=True)
    assert torch.equal(off, alone) and not torch.equal(mine, alone)


@pytest.mark.parametrize("exclude", [".*(visual|vision|projector).*", None])
@pytest.mark.parametrize("family", TINY)
def test_nothing_is_computed_backwards_through_a_vision_tower_without_adapters(
    family: str, exclude: str | None
) -> None:
    engine = VideoEngine.__new__(VideoEngine)
    lora = {"lora_adapter_path": None, "lora_rank": RANK, "lora_alpha": ALPHA, "target_parameters": None}
    engine.model_config = SimpleNamespace(**lora, target_modules="all-linear", exclude_modules=exclude)
    model = model_of(TINY[family])
    engine._build_lora_module(model)
    inner = model.model
    output, _ = features_of(model.float(), TINY[family], 64)
    seen = output.pooler_output
    assert seen.requires_grad == (exclude is None)
    assert inner.language_model.embed_tokens(torch.tensor([1])).requires_grad, "the adapters' gradients come this way"
