"""The planner's formulas about memory against tensors: verl's, transformers' and vLLM's own code in small shapes."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from verl.utils.experimental.torch_functional import FusedLinearForPPO
from verl.utils.torch_functional import entropy_from_logits

from agentic_video.planning import memory
from agentic_video.planning.memory import BF16, Head, Precision
from agentic_video.planning.published_checkpoints import published_checkpoints
from agentic_video.planning.shapes import ModelShape, published_shapes
from agentic_video.utils.units import GIB
from tests.planning.live import LiveBytes, allocated_peak
from tests.planning.models import HYBRID, TINY, features_of, model_of, positions_of, tower_parts

SEVEN = published_shapes()["Qwen/Qwen2.5-VL-7B-Instruct"]
HIDDEN, VOCAB = 32, 4096


class CrossEntropy(torch.autograd.Function):
    """What flash-attn's kernel keeps and makes, which verl uses on GPUs: the logits, and a gradient as large, written
    over them or not. Few rows are gone through at a time, as the kernel needs nothing of the logits' size."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, inplace: bool) -> torch.Tensor:
        norms = torch.cat([row.float().logsumexp(-1) for row in logits.split(64)])
        ctx.save_for_backward(logits, norms, labels)
        ctx.inplace = inplace
        return norms - logits.gather(-1, labels[:, None])[:, 0].float()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        logits, norms, labels = ctx.saved_tensors
        made = logits if ctx.inplace else torch.empty_like(logits)
        for start in range(0, len(logits), 64):
            rows = slice(start, start + 64)
            chances = (logits[rows].float() - norms[rows, None]).exp()
            chances.scatter_add_(-1, labels[rows, None], -torch.ones(len(chances), 1))
            made[rows] = chances * gradient[rows, None]
        return made, None, None


def autocast_entropy(logits: torch.Tensor) -> torch.Tensor:
    """verl's ``entropy_from_logits`` as CUDA's autocast runs it: the softmax in float32."""
    chances = torch.nn.functional.softmax(logits.float(), dim=-1)
    return torch.logsumexp(logits, dim=-1) - torch.sum(chances * logits, dim=-1)


def peak_of_head(tokens: int, entropy: Any, temperature: float = 1.0) -> int:
    states = torch.randn(tokens, HIDDEN).bfloat16().requires_grad_()
    weights = torch.randn(VOCAB, HIDDEN).bfloat16().requires_grad_()
    labels = torch.randint(0, VOCAB, (tokens,))

    def step() -> None:
        logits = states @ weights.t()
        if temperature != 1:
            logits = logits / torch.full((tokens, 1), temperature).bfloat16()
        bonus = 0.001 * entropy(logits).float().sum() if entropy else 0.0
        loss = CrossEntropy.apply(logits, labels, entropy is None).sum() - bonus
        del logits
        loss.backward()

    step()  # compiles
    states.grad = weights.grad = None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    assert recorded.profiler is not None
    return allocated_peak(recorded.profiler.kineto_results.events())


@pytest.mark.parametrize("tokens", [4096, pytest.param(8192, marks=pytest.mark.slow)])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logits_without_entropy(tokens: int, temperature: float) -> None:
    text = replace(SEVEN.text, vocab=VOCAB, hidden=HIDDEN)
    planned = memory.head_bytes(tokens, text, Head(scaled=temperature != 1))
    assert planned == pytest.approx(peak_of_head(tokens, None, temperature), rel=0.15)


def test_logits_with_entropy_uncompiled() -> None:
    text = replace(SEVEN.text, vocab=VOCAB, hidden=HIDDEN)
    planned = memory.head_bytes(4096, text, Head(entropy=True, compiled=False))
    assert planned == pytest.approx(peak_of_head(4096, autocast_entropy), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logits_with_compiled_entropy(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    text = replace(SEVEN.text, vocab=VOCAB, hidden=HIDDEN)
    planned = memory.head_bytes(4096, text, Head(entropy=True, scaled=temperature != 1))
    compiled = torch.compile(entropy_from_logits, dynamic=True)
    assert planned == pytest.approx(peak_of_head(4096, compiled, temperature), rel=0.05)


@pytest.mark.parametrize("entropy", [True, False])
@pytest.mark.parametrize(
    ("tokens", "vocab", "hidden", "trained"),
    [
        (512, VOCAB, HIDDEN, True),
        (4096, VOCAB, HIDDEN, True),
        # the head's gradient is large enough to see here; of more chunks than one, the last one's part is still there
        (1024, 2048, 1024, True),
        (1024, 2048, 1024, False),
    ],
)
def test_fused_head(tokens: int, entropy: bool, vocab: int, hidden: int, trained: bool) -> None:
    """verl's real function, whose peak doesn't grow with the tokens."""
    states = torch.randn(1, tokens, hidden).bfloat16().requires_grad_()
    weights = torch.randn(vocab, hidden).bfloat16().requires_grad_(trained)
    labels = torch.randint(0, vocab, (1, tokens))
    with LiveBytes() as live:
        chances, spread = FusedLinearForPPO()(states, weights, labels, 0.7)
        (chances.sum() + (0.001 * spread.float().sum() if entropy else 0.0)).backward()
    text = replace(SEVEN.text, vocab=vocab, hidden=hidden)
    planned = memory.head_bytes(tokens, text, Head(fused=True, entropy=entropy), trained=trained)
    assert planned == pytest.approx(live.peak, rel=0.05)


def narrow(family: str, **text: int) -> ModelShape:
    shape = replace(TINY[family].text, vocab=64, **text)
    if family in ("qwen2_vl", "qwen2_5_vl"):
        shape = replace(shape, head_dim=shape.hidden // shape.heads)
    return replace(TINY[family], text=shape)


def decoder(shape: ModelShape, tokens: int, *, checkpointed: bool = True) -> tuple[int, int]:
    """(kept from forward to backward, most beside that in the backward pass) of a bfloat16 decoder."""
    model = model_of(shape).bfloat16().train()
    if checkpointed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    inputs = torch.randn(1, tokens, shape.text.hidden).bfloat16().requires_grad_()
    with LiveBytes() as live:
        states = model.model.language_model(
            inputs_embeds=inputs, position_ids=positions_of(shape, tokens), use_cache=False
        ).last_hidden_state
        kept, live.peak = live.now, live.now
        states.float().sum().backward()
    return kept, live.peak - kept


SHAPES = (
    {"hidden": 64, "intermediate": 192, "heads": 4, "kv_heads": 2},
    {"hidden": 64, "intermediate": 384, "heads": 4, "kv_heads": 4},
    {"hidden": 128, "intermediate": 640, "heads": 8, "kv_heads": 4},
)


@pytest.mark.slow
@pytest.mark.parametrize("family", TINY)
@pytest.mark.parametrize("sides", SHAPES, ids=str)
def test_decoder_with_checkpoints(family: str, sides: dict[str, int]) -> None:
    shape, tokens = narrow(family, layers=4, **sides), 2048
    kept, working = decoder(shape, tokens)
    assert kept <= memory.decoder_bytes(tokens, shape) <= 1.3 * kept
    assert tokens * memory.layer_bytes(shape) == pytest.approx(working, rel=0.08)


def test_each_checkpointed_layer_keeps_its_input_and_nothing_else() -> None:
    shape = narrow("qwen2_5_vl", layers=4, hidden=64, intermediate=96, heads=4, kv_heads=2)
    deeper = replace(shape, text=replace(shape.text, layers=9))
    more = decoder(deeper, 512)[0] - decoder(shape, 512)[0]
    assert more == 5 * 512 * 64 * BF16
    assert more == memory.decoder_bytes(512, deeper) - memory.decoder_bytes(512, shape)


@pytest.mark.parametrize("family", TINY)
def test_decoder_without_checkpoints(family: str) -> None:
    shape = narrow(family, layers=4, hidden=64, intermediate=384, heads=4, kv_heads=2)
    kept, _ = decoder(shape, 1024, checkpointed=False)
    assert kept <= memory.decoder_bytes(1024, shape, checkpointed=False) <= 1.6 * kept


TOWERS = {**TINY, **HYBRID}


def tower(shape: ModelShape, patches: int, *, trained: bool = True) -> tuple[int, int]:
    model = model_of(shape).bfloat16().train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for part in tower_parts(model):
        part.requires_grad_(trained)
    with LiveBytes() as live:
        features, _pixels = features_of(model, shape, patches)
        kept, live.peak = live.now, live.now
        if trained:
            features.pooler_output.float().sum().backward()
    return kept, live.peak - kept


@pytest.mark.parametrize("family", TOWERS)
@pytest.mark.parametrize(
    ("width", "inner", "patches"),
    [
        (64, 128, 2048),
        pytest.param(64, 192, 4096, marks=pytest.mark.slow),
        pytest.param(128, 384, 4096, marks=pytest.mark.slow),
    ],
)
def test_vision_tower(family: str, width: int, inner: int, patches: int) -> None:
    vision = replace(TOWERS[family].vision, hidden=width, intermediate=inner, depth=4)
    shape = replace(TOWERS[family], vision=vision)
    kept, working = tower(shape, patches)
    if vision.merger:  # what the merger keeps is gone by the time a block needs most
        planned = memory.tower_bytes(patches, shape) + patches * memory.block_bytes(shape)
        assert planned == pytest.approx(kept + working, rel=0.06)
        return
    assert memory.tower_bytes(patches, shape) == pytest.approx(kept, rel=0.08)
    assert patches * memory.block_bytes(shape) == pytest.approx(working, rel=0.06)


@pytest.mark.parametrize("family", TINY)
def test_a_frozen_tower_keeps_its_pixels_only(family: str) -> None:
    shape = TINY[family]
    kept, _ = tower(shape, 1024, trained=False)
    features = 1024 // 4 * shape.text.hidden * BF16 * (1 + shape.vision.deepstack)
    positions = 4 * 1024 * shape.vision.hidden * 4
    # Qwen2.5-VL's windows leave some thousand numbers more.
    assert kept - features - positions <= 1.01 * memory.tower_bytes(1024, shape, trained=False) <= 1.5 * kept


@pytest.mark.parametrize(("tensor_parallel", "heads"), [(1, 4), (2, 2), (4, 1)])
def test_kv_cache_is_vllm_s_own_spec(tensor_parallel: int, heads: int) -> None:
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    spec = FullAttentionSpec(block_size=16, num_kv_heads=heads, head_size=128, dtype=torch.bfloat16)
    assert 16 * memory.kv_bytes(SEVEN.text, tensor_parallel) == SEVEN.text.layers * spec.page_size_bytes


def test_linear_attention_has_a_state_and_no_cache() -> None:
    """Of Qwen3.5-9B's 32 layers 8 have a cache; a state is 32 heads of 128 x 128, and 3 inputs of 8192 numbers."""
    from vllm.v1.kv_cache_interface import MambaSpec

    text = published_shapes()["Qwen/Qwen3.5-9B"].text
    assert memory.kv_bytes(text) == 8 * 2 * 4 * 256 * BF16
    spec = MambaSpec(
        block_size=16,
        shapes=((3, 8192), (32, 128, 128)),
        dtypes=(torch.bfloat16, torch.float32),
        mamba_cache_mode="align",
    )
    assert memory.state_bytes(text) == 2 * 24 * spec.page_size_bytes
    assert memory.state_bytes(text, 2) == memory.state_bytes(text) // 2
    assert memory.state_bytes(SEVEN.text) == 0


@pytest.mark.parametrize("frozen", [False, True])
def test_optimizer_state(frozen: bool) -> None:
    shape = TINY["qwen2_5_vl"]
    model = model_of(shape)
    model.model.visual.requires_grad_(not frozen)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    with LiveBytes() as live:
        optimizer.step()
    precision = Precision(frozen_vision=frozen)
    assert live.now == pytest.approx(memory.optimizer_bytes(shape, precision), rel=0.01)
    assert live.peak - live.now == pytest.approx(memory.optimizer_step_bytes(shape, precision), rel=0.1)
    gradients = sum(one.grad.nbytes for one in model.parameters() if one.grad is not None)
    assert gradients == memory.gradient_bytes(shape, precision)


def test_published_logits() -> None:
    """VideoZoomer's micro-batch: 53,248 tokens of Qwen2.5-VL-7B."""
    one = memory.logits_bytes(53_248, SEVEN.text.vocab)
    assert one / GIB == pytest.approx(15.1, abs=0.05)
    assert memory.head_bytes(53_248, SEVEN.text, Head(entropy=True)) == 3 * one
    assert memory.head_bytes(53_248, SEVEN.text, Head(fused=True, entropy=True)) / GIB < 5
    assert memory.kv_bytes(SEVEN.text) == 57_344


def test_as_many_largest_items_as_vllm_s_encoder_budget_holds() -> None:
    """An image of at most 16,384 tokens, a clip of Qwen2.5-VL of as many for each two of 14 frames."""
    older, newer = (
        published_checkpoints()[name].rules for name in ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen3-VL-8B-Instruct")
    )
    images = {"image": 128, "video": 0}
    for rules in (older, newer):
        assert memory.profiled_tokens(rules, 8192, 53_248, 128, images) == 16_384  # the budget is one item at least
        assert memory.profiled_tokens(rules, 32_767, 53_248, 128, images) == 16_384
        assert memory.profiled_tokens(rules, 65_536, 53_248, 128, images) == 4 * 16_384
    # two sequences of at most one image
    assert memory.profiled_tokens(older, 65_536, 53_248, 2, {"image": 1, "video": 0}) == 2 * 16_384
    # three images' tokens in 53,248; Qwen3-VL's largest clip, 12,288 tokens, is less than its largest image
    assert memory.profiled_tokens(older, 8192, 53_248, 128, {}) == 3 * 16_384
    assert memory.profiled_tokens(newer, 8192, 53_248, 128, {}) == 16_384
    assert memory.profiled_tokens(older, 8192, 53_248, 128, {"image": 0, "video": 0}) == 0


def test_a_second_profiled_image_takes_its_blocks_memory() -> None:
    """16,384 tokens of four patches, each in bfloat16 six times the hidden size and twice the MLP's."""
    shape = published_shapes()["Qwen/Qwen2.5-VL-7B-Instruct"]
    one, two = (
        memory.engine_bytes(
            shape, tensor_parallel=1, batched_tokens=8192, sequences=1, profiled=profiled, lora_rank=0, eager=True
        )["activations"]
        for profiled in (16_384, 32_768)
    )
    assert two - one == 16_384 * 4 * 2 * (6 * 1280 + 2 * 3420)
