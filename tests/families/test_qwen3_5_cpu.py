"""vLLM's gated delta net in float32 against transformers' layer: a prompt in pieces, then tokens one by one."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet

from agentic_video.families import qwen3_5_cpu

CONFIG = Qwen3_5TextConfig(
    hidden_size=64,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    num_hidden_layers=2,
)
SLOTS, TOKENS = (3, 1), (77, 90)
"""Blocks in which two sequences have their states, and how long the sequences are."""


def vllm_layer(layer: Any) -> Any:
    """The parts of vLLM's layer that the operator reads, with empty states in its cache."""
    width = 2 * layer.key_dim + layer.value_dim
    names = ("key_dim", "value_dim", "head_k_dim", "head_v_dim", "conv1d", "A_log", "dt_bias")
    states = torch.zeros(5, layer.num_v_heads, layer.head_v_dim, layer.head_k_dim)
    cache = (torch.full((5, layer.conv_kernel_size - 1, width), 9.0), states.fill_(9.0))
    return SimpleNamespace(tp_size=1, kv_cache=cache, **{name: getattr(layer, name) for name in names})


def batch(lengths: list[int], decodes: int, slots: list[int], started: list[bool]) -> Any:
    starts = torch.tensor(np.cumsum([0, *lengths]))
    return SimpleNamespace(
        num_decodes=decodes,
        num_prefills=len(lengths) - decodes,
        non_spec_query_start_loc=starts,
        non_spec_state_indices_tensor=torch.tensor(slots),
        has_initial_state=torch.tensor(started),
    )


@torch.no_grad()
@pytest.mark.parametrize("chunk", [1, 2, 64])
def test_pieces_of_sequences_equal_transformers_whole_ones(chunk: int) -> None:
    """The first sequence ends token by token, while the second is prefilled in two pieces in the same batches."""
    torch.manual_seed(0)
    layer = Qwen3_5GatedDeltaNet(CONFIG, 0).float().eval()
    mine = vllm_layer(layer)
    hidden = [torch.randn(1, count, 64) for count in TOKENS]
    inputs, made = [], []
    for states in hidden:
        parts = (layer.in_proj_qkv(states), layer.in_proj_b(states), layer.in_proj_a(states))
        inputs.append([part[0] for part in parts])
        made.append(torch.zeros(states.shape[1], layer.num_v_heads, layer.head_v_dim))
    at = [0, 0]

    def step(counts: list[int], decodes: int) -> None:
        rows = [row for row in range(2) if counts[row]]
        pieces = [[part[at[row] : at[row] + counts[row]] for part in inputs[row]] for row in rows]
        values = [torch.cat(parts) for parts in zip(*pieces, strict=True)]
        output = torch.zeros(len(values[0]), layer.num_v_heads, layer.head_v_dim)
        lengths = [counts[row] for row in rows]
        started = [at[row] > 0 for row in rows]
        qwen3_5_cpu._advance_all(mine, batch(lengths, decodes, [SLOTS[row] for row in rows], started), *values, output)
        for row, piece in zip(rows, output.split(lengths), strict=True):
            made[row][at[row] : at[row] + counts[row]] = piece
            at[row] += counts[row]

    step([70 if chunk > 2 else chunk, 0], 0)
    step([1, 60], 1)
    step([1, 1], 2)
    step([1, 29], 1)
    while at[0] < TOKENS[0]:
        step([1, 0], 1)
    for row, states in enumerate(hidden):
        z = layer.in_proj_z(states).reshape(-1, layer.head_v_dim)
        normed = layer.norm(made[row].reshape(-1, layer.head_v_dim), z).reshape(1, TOKENS[row], -1)
        assert torch.allclose(layer.out_proj(normed), layer(states), atol=1e-5, rtol=1e-4)


def test_blocks_are_copied() -> None:
    module: Any = SimpleNamespace()
    qwen3_5_cpu.copied_blocks(module)
    source, target = torch.arange(6.0), torch.zeros(6)
    addresses = (torch.tensor([part.data_ptr(), part[3:].data_ptr()]) for part in (source, target))
    module.batch_memcpy(*addresses, torch.tensor([8, 4]))
    assert target.tolist() == [0.0, 1.0, 0.0, 3.0, 0.0, 0.0]
