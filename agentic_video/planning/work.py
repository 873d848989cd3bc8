"""Operations and memory traffic of a model's passes over one sequence; a product with its sum is two operations.

Not counted: attention inside a picture (6 % of a vision block at 512 patches), linear attention's states, mergers, and
LoRA's own products (2 % of a layer)."""

from dataclasses import dataclass

from agentic_video.families.shapes import TextShape
from agentic_video.planning.memory import BF16, FUSED_CHUNK, Head, Precision, trained_parameters
from agentic_video.planning.shapes import ModelShape

ATTENTION_BACKWARD = 2.5
"""Flash attention's backward pass against its forward one: five products of matrices against two."""
SCORED, GRADIENT, ENTROPY = 64, 66, 88
"""Bytes of a GPU's memory that a logit moves in verl's fused head: forward, backward, and the entropy's gradient.
Reads and writes of its elementwise operations, added up (``utils/experimental/torch_functional.py:36``)."""
ADAMW = 24
"""Reads and writes of each trained number in torch's ``foreach`` AdamW (21) and in clipping gradients (3)."""


@dataclass(frozen=True)
class Work:
    """Operations of the decoder with its head, operations of the vision tower, and bytes of a GPU's memory that kernels
    without products of matrices move."""

    decoder: float = 0.0
    tower: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.decoder + other.decoder, self.tower + other.tower, self.bytes + other.bytes)

    def __mul__(self, times: float) -> "Work":
        return Work(self.decoder * times, self.tower * times, self.bytes * times)


def attention(text: TextShape, new: float, old: float = 0.0) -> float:
    """Operations of causal attention of new tokens, which follow old ones."""
    return 4 * new * (old + new / 2) * text.heads * text.head_dim * text.cached_layers


def layers(shape: ModelShape, tokens: float) -> float:
    """Operations of the decoder layers' matrices, of which a token uses its own experts."""
    return 2 * tokens * (shape.decoder - shape.text.idle_parameters)


def blocks(shape: ModelShape, patches: float) -> float:
    """Operations of the vision tower's blocks."""
    return 2 * patches * shape.vision.depth * shape.block


def scoring(shape: ModelShape, tokens: float, patches: float) -> Work:
    """A forward pass with log-probabilities and entropy."""
    text = shape.text
    decoder = layers(shape, tokens) + attention(text, tokens) + 2 * tokens * shape.embedding
    return Work(decoder, blocks(shape, patches), SCORED * tokens * text.vocab)


def training(
    shape: ModelShape, tokens: float, patches: float, precision: Precision, head: Head, *, checkpointed: bool
) -> Work:
    """A forward and a backward pass; with gradient checkpointing layers run again. Frozen weights have no gradients,
    and a frozen vision tower no backward pass; the fused head's logits, and its weights' gradient, are always computed
    again."""
    text, again, own = shape.text, int(checkpointed), int(not precision.lora_rank)
    trains_vision = not (precision.frozen_vision or precision.lora_rank)
    decoder = layers(shape, tokens) * (2 + again + own)
    decoder += attention(text, tokens) * (1 + again + ATTENTION_BACKWARD)
    decoder += 2 * tokens * shape.embedding * (4 if head.fused else 2 + own)
    moved = tokens * text.vocab * (SCORED + GRADIENT + (ENTROPY if head.entropy else 0))
    if head.fused:  # each chunk's part of the gradient is written, and added to a trained head's
        moved += tokens / FUSED_CHUNK * shape.embedding * BF16 * (4 if own else 1)
    return Work(decoder, blocks(shape, patches) * (3 + again if trains_vision else 1), moved)


def optimizer(shape: ModelShape, precision: Precision) -> Work:
    """AdamW's step, unsharded."""
    return Work(bytes=ADAMW * precision.weight_bytes * trained_parameters(shape, precision))
