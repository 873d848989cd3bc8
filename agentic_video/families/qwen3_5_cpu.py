"""vLLM's gated delta net on a CPU in float32, whose own kernels take bfloat16 alone; on GPUs nothing is changed."""

import ctypes
import inspect
from functools import wraps
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F


def float32_operator(gdn_attention: ModuleType) -> None:
    """Give the operator a float32 form, before it is registered for a model's first layer."""
    stock, register = gdn_attention.cpu_gdn_attention_core, gdn_attention.register_cpu_gdn_attention_ops

    @wraps(stock)
    def cpu_gdn_attention_core(
        mixed_qkv: torch.Tensor, b: torch.Tensor, a: torch.Tensor, core_attn_out: torch.Tensor, layer_name: Any
    ) -> None:
        if mixed_qkv.dtype == torch.bfloat16:
            return stock(mixed_qkv, b, a, core_attn_out, layer_name)
        context = gdn_attention.get_forward_context()
        layer = context.no_compile_layers[gdn_attention._resolve_layer_name(layer_name)]
        if context.attn_metadata is not None and context.attn_metadata[layer.prefix].num_actual_tokens:
            _advance_all(layer, context.attn_metadata[layer.prefix], mixed_qkv, b, a, core_attn_out)

    @wraps(register)
    def register_cpu_gdn_attention_ops() -> None:
        if torch.get_default_dtype() != torch.bfloat16:  # the model's
            _without_amx()
        register()

    # annotations are text there, which its registration evaluates among the function's own globals
    cpu_gdn_attention_core.__signature__ = inspect.signature(stock, eval_str=True)  # type: ignore[attr-defined]
    gdn_attention.cpu_gdn_attention_core = cpu_gdn_attention_core  # type: ignore[attr-defined]
    gdn_attention.register_cpu_gdn_attention_ops = register_cpu_gdn_attention_ops  # type: ignore[attr-defined]


def _advance_all(
    layer: Any, batch: Any, mixed: torch.Tensor, b: torch.Tensor, a: torch.Tensor, output: torch.Tensor
) -> None:
    """Process a batch: the sequences that get one token together, then prefills one by one."""
    from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first

    convolved, states = layer.kv_cache[0], layer.kv_cache[1]
    convolved = convolved if is_conv_state_dim_first() else convolved.transpose(-1, -2)
    states = states.view(len(states), states.shape[1], layer.head_k_dim, layer.head_v_dim)
    decodes, slots = batch.num_decodes, batch.non_spec_state_indices_tensor
    pieces = [(slice(0, decodes), slots[:decodes], False)] if decodes else []
    starts = batch.non_spec_query_start_loc.tolist()
    for row in range(decodes, decodes + batch.num_prefills):
        new = not batch.has_initial_state[row]
        pieces.append((slice(starts[row], starts[row + 1]), slots[row : row + 1], new))
    for part, kept, new in pieces:
        rows = len(kept)
        values, rates, decays = (given[part].reshape(rows, -1, given.shape[-1]) for given in (mixed, b, a))
        before = convolved[kept], states[kept]
        if new:
            before = torch.zeros_like(before[0]), torch.zeros_like(before[1])
        made, after, state = _advance(layer, values, rates, decays, *before)
        convolved[kept], states[kept] = after.to(convolved.dtype), state.to(states.dtype)
        output[part] = made.flatten(0, 1).to(output.dtype)


def _advance(
    layer: Any, mixed: torch.Tensor, b: torch.Tensor, a: torch.Tensor, convolved: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output, last inputs of the convolution, and state of sequences (rows, tokens, values), as transformers has it."""
    from transformers.models.qwen3_5.modeling_qwen3_5 import (
        torch_chunk_gated_delta_rule,
        torch_recurrent_gated_delta_rule,
    )

    joined = torch.cat([convolved.to(mixed.dtype), mixed.transpose(1, 2)], -1)
    weight = layer.conv1d.weight.view(layer.conv1d.weight.shape[0], 1, -1)
    values = F.silu(F.conv1d(joined, weight, layer.conv1d.bias, groups=len(weight))).transpose(1, 2)
    key_dim, value_dim = layer.key_dim // layer.tp_size, layer.value_dim // layer.tp_size
    query, key, value = (
        part.unflatten(-1, (-1, size))
        for part, size in zip(
            values.split([key_dim, key_dim, value_dim], -1),
            (layer.head_k_dim, layer.head_k_dim, layer.head_v_dim),
            strict=True,
        )
    )
    shared = value.shape[2] // key.shape[2]
    rule = torch_recurrent_gated_delta_rule if mixed.shape[1] == 1 else torch_chunk_gated_delta_rule
    made, state = rule(
        query.repeat_interleave(shared, 2),
        key.repeat_interleave(shared, 2),
        value,
        g=-layer.A_log.float().exp() * F.softplus(a.float() + layer.dt_bias),
        beta=b.sigmoid(),
        initial_state=state,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    return made, joined[..., joined.shape[-1] - convolved.shape[-1] :], state


def prefix_caching(cpu: ModuleType) -> None:
    """Keep prefix caching and chunked prefill for models in float32."""
    original = cpu.CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls: type, vllm_config: Any) -> None:
        if vllm_config.model_config is not None and vllm_config.model_config.dtype == torch.float32:
            _without_amx()
        original(cls, vllm_config)

    cpu.CpuPlatform.check_and_update_config = classmethod(wraps(original)(check_and_update_config))


def _without_amx() -> None:
    """Hide AMX from vLLM, which has nothing for float32 there."""
    torch.cpu._is_amx_tile_supported = lambda: False


def copied_blocks(mamba_utils: ModuleType) -> None:
    """Copy states between blocks without Triton."""

    def batch_memcpy(sources: torch.Tensor, targets: torch.Tensor, sizes: torch.Tensor) -> None:
        for source, target, size in zip(sources.tolist(), targets.tolist(), sizes.tolist(), strict=True):
            ctypes.memmove(target, source, size)

    mamba_utils.batch_memcpy = batch_memcpy  # type: ignore[attr-defined]
