"""verl's fused kernels under FSDP2: what they compute, and that they need the patch."""

from collections.abc import Iterator
from inspect import unwrap
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy

from agentic_video.families.registry import family_of
from tests.planning.models import TINY, config_of, model_of, positions_of

TEMPERATURE = 0.7
TOKENS = 24


@pytest.fixture
def forwards() -> Iterator[None]:
    """verl puts its own forward functions into transformers' classes; afterwards they are as they were."""
    from transformers.models.glm4v import modeling_glm4v as glm
    from transformers.models.internvl import modeling_internvl as internvl
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as two
    from transformers.models.qwen3_vl import modeling_qwen3_vl as three

    changed = [
        glm.Glm4vModel,
        internvl.InternVLForConditionalGeneration,
        glm.Glm4vForConditionalGeneration,
        two.Qwen2_5_VLModel,
        two.Qwen2_5_VLForConditionalGeneration,
        three.Qwen3VLModel,
        three.Qwen3VLForConditionalGeneration,
    ]
    before = [(cls, cls.forward) for cls in changed]
    yield
    for cls, forward in before:
        cls.forward = forward


def sharded(family: str, *, fused: bool, lora: bool = False, offload: Any = None) -> Any:
    """A model as verl's engine builds it (engine:229, engine:323, engine:460)."""
    from verl.models.transformers.monkey_patch import apply_monkey_patch
    from verl.utils.fsdp_utils import apply_fsdp2

    torch.manual_seed(0)
    model = model_of(TINY[family])
    assert not config_of(TINY[family]).tie_word_embeddings
    apply_monkey_patch(
        model, use_remove_padding=False, ulysses_sp_size=1, use_fused_kernels=fused, fused_kernels_backend="torch"
    )
    if lora:
        from peft import LoraConfig, get_peft_model

        model.enable_input_require_grads()
        adapters = LoraConfig(
            r=4,
            lora_alpha=8,
            target_modules="all-linear",
            exclude_modules=".*(visual|vision|projector).*",
            init_lora_weights=False,
        )
        model = get_peft_model(model, adapters)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=True)
    options = {"mesh": init_device_mesh("cpu", (1,)), "mp_policy": policy, "reshard_after_forward": True}
    if offload is not None:
        options["offload_policy"] = offload
    apply_fsdp2(model, options, {})
    return model


def batch(family: str) -> dict[str, torch.Tensor]:
    """A sequence with one picture: 4 x 4 patches, or InternVL's 8 x 8, four to a token."""
    torch.manual_seed(1)
    shape = TINY[family]
    ids = torch.randint(10, shape.text.vocab, (1, TOKENS))
    texts = {"attention_mask": torch.ones_like(ids), "position_ids": positions_of(shape, TOKENS)}
    if family == "internvl":
        ids[0, 3:19] = 5
        return {"input_ids": ids, **texts, "pixel_values": torch.randn(1, 3, 8 * 14, 8 * 14)}
    ids[0, 3:7] = 5
    pixels = torch.randn(16, shape.vision.patch_values)
    return {"input_ids": ids, **texts, "pixel_values": pixels, "image_grid_thw": torch.tensor([[1, 4, 4]])}


def computed(model: Any, inputs: dict[str, torch.Tensor], *, fused: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies of the next tokens, shape (tokens,), as verl's engine asks for them."""
    from verl.utils.torch_functional import entropy_from_logits

    labels = torch.roll(inputs["input_ids"], shifts=-1, dims=-1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if fused:
            out = model(**inputs, use_cache=False, temperature=TEMPERATURE, return_dict=True, shift_labels=labels)
            return out.log_probs[0], out.entropy[0]
        logits = model(**inputs, use_cache=False).logits[0] / TEMPERATURE
        chances = logits.float().log_softmax(-1).gather(-1, labels[0, :, None])[:, 0]
        return chances, entropy_from_logits(logits.float())


def gradients(model: Any, inputs: dict[str, torch.Tensor], *, fused: bool) -> dict[str, torch.Tensor]:
    model.zero_grad()
    chances, entropies = computed(model, inputs, fused=fused)
    (chances.mean() + 0.1 * entropies.float().mean()).backward()
    return {name: weight.grad.full_tensor() for name, weight in model.named_parameters() if weight.grad is not None}


def test_the_fused_forward_of_other_models_drops_pictures(one_rank: None, forwards: None) -> None:
    """Why :attr:`ModelFamily.fused` is refused of them: what they are shown changes nothing."""
    model, inputs = sharded("internvl", fused=True), batch("internvl")
    other = {**inputs, "pixel_values": -inputs["pixel_values"]}
    with torch.no_grad():
        assert torch.equal(computed(model, inputs, fused=True)[0], computed(model, other, fused=True)[0])


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("family", [name for name in TINY if family_of(name).fused])
def test_fused_is_the_same(family: str, lora: bool, one_rank: None, forwards: None) -> None:
    inputs = batch(family)
    plain = sharded(family, fused=False, lora=lora)
    wanted = [item.detach() for item in computed(plain, inputs, fused=False)]
    slopes = gradients(plain, inputs, fused=False)
    model = sharded(family, fused=True, lora=lora)
    with torch.no_grad():
        alone = computed(model, inputs, fused=True)
    found = computed(model, inputs, fused=True)
    for item, other, quiet in zip(wanted, found, alone, strict=True):
        # bfloat16 states: a few in a thousand
        torch.testing.assert_close(other.float(), item.float(), rtol=0.01, atol=0.02)
        torch.testing.assert_close(other.float(), quiet.float())
    ours = gradients(model, inputs, fused=True)
    assert ours.keys() == slopes.keys() and ("lm_head.weight" in ours) is not lora
    for name, slope in slopes.items():
        distance = (ours[name] - slope).norm() / slope.norm().clamp(min=1e-8)
        assert distance < 0.05 or slope.norm() < 1e-6, (name, distance)


@pytest.mark.parametrize(
    ("family", "message"), [("qwen2_5_vl", "mixed torch.Tensor and DTensor"), ("qwen3_vl", "same dtype")]
)
def test_verl_alone_still_needs_the_patch(
    family: str, message: str, one_rank: None, forwards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import verl.utils.fsdp_utils as fsdp_utils

    monkeypatch.setattr(fsdp_utils, "_select_fsdp2_wrap_targets", unwrap(fsdp_utils._select_fsdp2_wrap_targets))
    with pytest.raises(RuntimeError, match=message):
        gradients(sharded(family, fused=True), batch(family), fused=True)
