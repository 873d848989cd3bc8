"""Memory formulas of the planner.

Sources: verl 0.9.1 (``workers/engine/fsdp/transformer_impl.py`` is "engine" below), vLLM 0.24, PyTorch's notes on FSDP2
and AdamW, and measurements of small shapes in ``tests/planning/test_memory.py``, which fails if one is off.
``tests/planning/test_one_gpu.py`` compares sums with measurements on one GPU."""

from collections.abc import Mapping
from dataclasses import dataclass

from agentic_video.families.base import ProcessorRules
from agentic_video.families.registry import family_of
from agentic_video.families.shapes import TextShape
from agentic_video.planning.shapes import ModelShape
from agentic_video.utils.units import GIB

BF16, FP32 = 2, 4

FUSED_CHUNK = 512
"""Tokens per chunk of verl's fused head (``utils/experimental/torch_functional.py:110``)."""
FUSED_BYTES = 28
"""Bytes of a logit in a chunk, at the peak of the fused backward pass with entropy: seven float32 copies (measured)."""
COMPILED_COPIES = 3
"""Copies of the bfloat16 logits with compiled entropy: the logits, the entropy's gradient, the log-probability's
(measured). Entropy's gradient needs the logits after the other's, so verl turns the in-place backward off
(engine:1426)."""
EAGER_COPIES = 10
"""The same without torch.compile: autocast takes the softmax in float32 (measured)."""

TAIL_HIDDEN = 10
"""Bytes per token and unit of hidden from the ends of the decoder: embeddings, last norm in float32."""


@dataclass(frozen=True)
class Precision:
    """Precision and trained parts of a model.

    Attributes:
        weight_bytes: Bytes of a weight between uses (``fsdp_config.model_dtype``; float32 in verl's yaml).
        frozen_vision: The vision tower isn't trained.
    """

    weight_bytes: int = FP32
    lora_rank: int = 0
    frozen_vision: bool = False


def trained_parameters(shape: ModelShape, precision: Precision) -> int:
    """Parameters with a gradient."""
    if precision.lora_rank:
        return shape.adapters(precision.lora_rank)
    return shape.language if precision.frozen_vision else shape.parameters


def weight_bytes(shape: ModelShape, precision: Precision) -> int:
    """All weights of the training model, adapters included, unsharded."""
    adapters = shape.adapters(precision.lora_rank) if precision.lora_rank else 0
    return (shape.parameters + adapters) * precision.weight_bytes


def gradient_bytes(shape: ModelShape, precision: Precision) -> int:
    """Reduced gradients, unsharded: FSDP2 keeps them in the weights' type."""
    return trained_parameters(shape, precision) * precision.weight_bytes


def optimizer_bytes(shape: ModelShape, precision: Precision) -> int:
    """AdamW's two moments, unsharded, in the weights' type."""
    return 2 * trained_parameters(shape, precision) * precision.weight_bytes


def optimizer_step_bytes(shape: ModelShape, precision: Precision) -> int:
    """AdamW's temporaries in a step: ``foreach`` makes lists of intermediate results, about as large as the trained
    weights (torch.optim.AdamW)."""
    return trained_parameters(shape, precision) * precision.weight_bytes


def root_bytes(shape: ModelShape, *, fused: bool) -> int:
    """Weights that FSDP2 keeps unsharded from the start of a forward pass to the end of its backward pass, in bfloat16.

    Units are a decoder layer, a vision block, the embedding, the head (``utils/fsdp_utils.py:549``); the root has the
    rest: mergers, the tied embedding, and with fused kernels the head."""
    root = shape.tower - shape.vision.depth * shape.block
    return BF16 * (root + (shape.embedding if head_in_root(shape, fused=fused) else 0))


def head_in_root(shape: ModelShape, *, fused: bool) -> bool:
    """True if the output head belongs to FSDP2's root unit."""
    return shape.text.tied or fused


def gathered_bytes(parameters: int, shards: int) -> int:
    """Unsharded weights of a running unit, in bfloat16.

    Three copies: the running unit, the prefetched one, and the gather's buffer. Without sharding torch 2.11 casts the
    running unit and prefetches none (``_fsdp_param_group.py``, ``unshard``, ``world_size == 1``)."""
    return BF16 * parameters * (3 if shards > 1 else 1)


def reduced_bytes(parameters: int) -> int:
    """A unit's unsharded gradient in bfloat16, and in float32, in which it is reduced."""
    return (BF16 + FP32) * parameters


def logits_bytes(tokens: int, vocab: int) -> int:
    """One copy of the logits in bfloat16: shape (tokens, vocab)."""
    return tokens * vocab * BF16


@dataclass(frozen=True)
class Head:
    """Computation of log-probabilities and entropy.

    Attributes:
        fused: ``model.use_fused_kernels`` with the torch backend.
        entropy: The loss has an entropy term (``actor.entropy_coeff``, or ``actor.calculate_entropy``).
        compiled: The entropy is compiled (``fsdp_config.use_torch_compile``).
        scaled: The temperature isn't 1, for which verl divides the logits out of place (engine:100).
    """

    fused: bool = False
    entropy: bool = False
    compiled: bool = True
    scaled: bool = False


def head_bytes(tokens: int, text: TextShape, head: Head, *, trained: bool = True) -> int:
    """Peak of the output head: logits, entropy, log-probabilities, and their gradients.

    Without entropy, flash-attn's cross-entropy writes the gradient over the logits: one copy, or two with a
    temperature. With fused kernels no copy is ever whole: chunks of 512 tokens, the head's gradient and one chunk's
    part of it.

    Args:
        trained: The head gets a gradient (not with LoRA); fused, a chunk's part of it is computed anyway.
    """
    if head.fused:
        chunk = min(tokens, FUSED_CHUNK) * text.vocab * (FUSED_BYTES if head.entropy else FUSED_BYTES - 8)
        gradients = (2 if trained else 1) * text.vocab * text.hidden * BF16
        return chunk + gradients + tokens * text.hidden * BF16
    one = logits_bytes(tokens, text.vocab)
    if head.entropy:
        return one * (COMPILED_COPIES if head.compiled else EAGER_COPIES)
    return one * (2 if head.scaled else 1)


def layer_bytes(shape: ModelShape) -> int:
    """Bytes per token of a decoder layer in its backward pass, with flash attention."""
    text, bytes_of = shape.text, family_of(shape.family).activations
    heads = (text.heads + text.kv_heads) * text.head_dim
    return bytes_of.hidden * text.hidden + bytes_of.intermediate * text.intermediate + bytes_of.heads * heads


def block_bytes(shape: ModelShape) -> int:
    """Bytes per patch of a vision block in its backward pass."""
    vision, bytes_of = shape.vision, family_of(shape.family).activations
    return bytes_of.block_hidden * vision.hidden + bytes_of.block_intermediate * vision.intermediate


def decoder_bytes(tokens: int, shape: ModelShape, *, checkpointed: bool = True) -> int:
    """The decoder's activations: with gradient checkpointing each layer's bfloat16 input, else all of every layer."""
    kept = shape.text.hidden * BF16 if checkpointed else layer_bytes(shape)
    return tokens * (shape.text.layers * kept + TAIL_HIDDEN * shape.text.hidden)


def tower_bytes(patches: int, shape: ModelShape, *, trained: bool = True, checkpointed: bool = True) -> int:
    """The vision tower's activations, with its patches in bfloat16.

    A frozen tower keeps only its patches. They are made in float32 on the device, of a micro-batch's distinct images,
    before the rest of the micro-batch exists: never the worst moment."""
    vision = shape.vision
    pixels = vision.patch_values * BF16
    if not trained:
        return patches * pixels
    kept = vision.hidden * BF16 if checkpointed else block_bytes(shape)
    return patches * (vision.depth * kept + family_of(shape.family).activations.ends * vision.hidden + pixels)


def kv_bytes(text: TextShape, tensor_parallel: int = 1) -> int:
    """Bytes per token of vLLM's KV cache on each GPU: keys and values of every layer without linear
    attention, in bfloat16 (``vllm/v1/kv_cache_interface.py``, ``AttentionSpec.real_page_size_bytes``)."""
    heads = max(1, text.kv_heads // tensor_parallel)
    return 2 * text.cached_layers * heads * text.head_dim * BF16


def state_bytes(text: TextShape, tensor_parallel: int = 1) -> int:
    """Bytes of a sequence's states in layers with linear attention on each GPU: the running one and the one that prefix
    caching keeps (``MambaSpec.max_memory_usage_bytes``), in float32, with the last inputs of the convolution."""
    linear = text.linear
    if linear is None:
        return 0
    state = FP32 * linear.values * linear.key_dim + BF16 * (linear.kernel - 1) * linear.convolved
    return 2 * linear.layers * state // tensor_parallel


ANY_NUMBER = 999
"""vLLM's default of pictures in a prompt (``vllm/config/multimodal.py``)."""
GRAPHS = 1 * GIB
"""CUDA graphs of an engine (assumed)."""


def profiled_tokens(
    rules: ProcessorRules, batched_tokens: int, model_len: int, sequences: int, limits: Mapping[str, int]
) -> int:
    """Visual tokens with which vLLM measures its encoder: as many of the largest images, or clips, as its budget and
    its sequences hold (``vllm/multimodal/encoder_budget.py``).

    Args:
        limits: ``limit_mm_per_prompt``.
    """
    sizes = {"image": rules.most_image_tokens, "video": rules.most_clip_tokens(model_len)}
    largest, kind = max((size if limits.get(kind, ANY_NUMBER) else 0, kind) for kind, size in sizes.items())
    if not largest:
        return 0
    each = max(1, min(limits.get(kind, ANY_NUMBER), model_len // largest))
    return largest * max(1, min(max(batched_tokens, largest) // largest, sequences * each))


def engine_bytes(
    shape: ModelShape,
    *,
    tensor_parallel: int,
    batched_tokens: int,
    sequences: int,
    profiled: int,
    lora_rank: int,
    eager: bool,
) -> dict[str, int]:
    """Memory of a vLLM engine on each GPU besides its KV cache.

    Args:
        batched_tokens: ``max_num_batched_tokens`` of one forward pass.
        sequences: ``max_num_seqs``, whose logits exist in float32, twice for sampling.
        profiled: Visual tokens of :func:`profiled_tokens`.
    """
    text = shape.text
    parts = {
        "weights": shape.parameters * BF16 // tensor_parallel,
        "activations": batched_tokens * BF16 * (4 * text.hidden + 3 * text.intermediate // tensor_parallel)
        + sequences * text.vocab * FP32 * 2
        + profiled * shape.vision.merge**2 * BF16 * (6 * shape.vision.hidden + 2 * shape.vision.intermediate),
        "graphs": 0 if eager else GRAPHS,
    }
    if lora_rank:
        parts["adapters"] = shape.adapters(lora_rank) * BF16
    return parts
