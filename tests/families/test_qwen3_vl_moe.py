"""Experts of Qwen3-VL-MoE in the three layouts' places: transformers' modules, files, and what a weight sync sends."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from agentic_video.families.qwen3_vl_moe import published_experts
from agentic_video.toyworld.model import ModelRecipe, build_model, build_tokenizer, load_checkpoint, save_checkpoint

EXPERTS = "model.language_model.layers.0.mlp.experts."


def test_a_saved_folder_has_experts_as_published(tmp_path: Path) -> None:
    tokenizer = build_tokenizer([], family="qwen3_vl_moe")
    model = build_model(tokenizer, ModelRecipe(family="qwen3_vl_moe"))
    save_checkpoint(model, tokenizer, tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    saved, own = load_file(file), model.state_dict()
    # four experts of 64 inputs, and a gate and a value of 48 numbers
    assert saved[EXPERTS + "gate_up_proj"].shape == (4, 64, 96)
    assert saved[EXPERTS + "down_proj"].shape == (4, 48, 64)
    again = load_checkpoint(tmp_path)[0].state_dict()
    assert own.keys() == again.keys() and all(torch.equal(again[name], value) for name, value in own.items())


def test_experts_are_turned_where_they_are_transformers() -> None:
    up, down, other = torch.randn(4, 96, 64), torch.randn(4, 64, 48), torch.randn(96, 64)
    given = [("a.experts.gate_up_proj", up), ("a.experts.down_proj", down), ("a.gate_up_proj", other)]
    published = [("a.experts.gate_up_proj", up.mT), ("a.experts.down_proj", down.mT), ("a.gate_up_proj", other)]
    for weights in (given, published):
        found = list(published_experts(weights, 64, 48))
        assert all(
            name == told and torch.equal(value, want)
            for (name, value), (told, want) in zip(found, published, strict=True)
        )
