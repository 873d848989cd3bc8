"""Settings of frame retrieval by text."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DEVICES = re.compile(r"auto|cpu|cuda(:\d+)?")
_SCHEMAS = ("local-dir:", "hf-hub:")
_POSITIVE = ("threads", "batch_size", "max_prompt_chars", "start_seconds")
_NOT_NEGATIVE = ("num_gpus", "wait_ms", "max_bytes", "max_texts", "cache_bytes")


@dataclass(frozen=True)
class RetrievalConfig:
    """Model that compares frames with texts, its device, and bounds of its caches.

    Attributes:
        model: Model by its open_clip name, or ``local-dir:/path`` (a folder with ``open_clip_config.json`` and weights,
            nothing is downloaded), or ``hf-hub:owner/name``; empty for no retrieval.
        pretrained: Tag or checkpoint file of a model that is given by name; empty for the other two.
        device: ``auto`` (CUDA where there is a visible device, else the CPU), ``cpu``, ``cuda`` or ``cuda:N``.
        num_gpus: Share of a GPU that Ray sets aside for the retriever of each node. 0 takes none: the retriever shares
            a GPU with whatever runs there. verl reserves all of its GPUs whole, so more than 0 needs a GPU on each node
            beyond ``trainer.n_gpus_per_node``.
        threads: CPU threads of a forward pass.
        batch_size: Most frames, or texts, in a forward pass.
        wait_ms: Milliseconds that a batch which isn't full waits for other rollouts' requests.
        max_bytes: Most bytes of frame embeddings kept in memory.
        max_texts: Most text embeddings kept in memory.
        cache_dir: Folder that keeps frame embeddings between runs; several nodes may share it. Empty keeps none.
        cache_bytes: Most bytes of that folder; the least recently used files are evicted.
        max_prompt_chars: Characters of a prompt that count; the rest is cut (a text tower reads 64 or 77 tokens).
        start_seconds: Seconds that the retriever of a node may take to start, loading the model included.

    Raises:
        ValueError: The values make no retriever.
    """

    model: str = ""
    pretrained: str = ""
    device: str = "auto"
    num_gpus: float = 0.0
    threads: int = 2
    batch_size: int = 32
    wait_ms: float = 5.0
    max_bytes: int = 256 * 2**20
    max_texts: int = 4096
    cache_dir: str = ""
    cache_bytes: int = 10 * 2**30
    max_prompt_chars: int = 256
    start_seconds: float = 600.0

    def __post_init__(self) -> None:
        if self.model.startswith(_SCHEMAS) and self.pretrained:
            raise ValueError(f"pretrained must be empty: {self.model} has its own weights")
        if self.model and not self.model.startswith(_SCHEMAS) and not self.pretrained:
            raise ValueError(f"model {self.model} needs pretrained: a tag of open_clip or a checkpoint file")
        if not _DEVICES.fullmatch(self.device):
            raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {self.device!r}")
        if self.num_gpus and self.device == "cpu":
            raise ValueError(f"num_gpus must be 0 with device cpu, got {self.num_gpus}")
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
