"""Sizes of a model's two parts, from which its parameters are counted."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LinearShape:
    """Decoder layers with linear attention, which have a state and no cache.

    Attributes:
        layers: Their number.
        kernel: Width of the convolution over queries, keys and values.
    """

    layers: int
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    kernel: int

    @property
    def queries(self) -> int:
        """Width of the queries of all heads; the keys' is the same."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Width of the values of all heads."""
        return self.value_heads * self.value_dim

    @property
    def convolved(self) -> int:
        """Width of queries, keys and values."""
        return 2 * self.queries + self.values


@dataclass(frozen=True)
class ExpertShape:
    """Experts of each decoder layer.

    Attributes:
        active: Experts that a token uses.
        width: Of an expert's MLP.
        shared: Width of the MLP that every token uses besides; 0 if there is none.
    """

    count: int
    active: int
    width: int
    shared: int


@dataclass(frozen=True)
class TextShape:
    """Language model, from ``text_config``; ``tied`` if the output head is the embedding.

    Of ``layers`` those of ``linear`` have linear attention; the sides of attention are those of the others. With
    ``experts``, ``intermediate`` is the width that a token uses.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    linear: LinearShape | None = None
    experts: ExpertShape | None = None

    @property
    def idle_parameters(self) -> int:
        """Parameters of the experts that a token doesn't use."""
        experts = self.experts
        return 3 * self.layers * self.hidden * (experts.count - experts.active) * experts.width if experts else 0

    @property
    def cached_layers(self) -> int:
        """Layers with a KV cache."""
        return self.layers - (self.linear.layers if self.linear else 0)


@dataclass(frozen=True)
class VisionShape:
    """Vision tower, from ``vision_config``.

    Attributes:
        patch: Side of a patch in pixels.
        merge: Patches along a side of a visual token.
        temporal: Frames per patch.
        deepstack: Further mergers, whose features enter early decoder layers.
        positions: Learnt positions.
        merger: Width of the merger's MLP, in families where it isn't that of the patches that it merges.
    """

    depth: int
    hidden: int
    heads: int
    intermediate: int
    patch: int
    merge: int = 2
    temporal: int = 2
    deepstack: int = 0
    positions: int = 0
    merger: int = 0

    @property
    def patch_values(self) -> int:
        """Numbers of a patch: RGB, ``temporal`` times."""
        return 3 * self.temporal * self.patch**2


@dataclass(frozen=True)
class ActivationBytes:
    """Bytes in a backward pass that differ between families (measured, ``tests/planning/test_memory.py``).

    Attributes:
        heads: Of a decoder layer, per token and unit of the attention heads' width.
        block_hidden: Of a block of the vision tower, per patch and unit of its hidden size.
        block_intermediate: The same per unit of its MLP.
        ends: The same of the tower's first convolution and its merger, per unit of the hidden size.
        hidden: Of a decoder layer, per token and unit of its hidden size; ``intermediate`` of its MLP.
    """

    heads: int
    block_hidden: int
    block_intermediate: int
    ends: int = 19
    hidden: int = 13
    intermediate: int = 12
