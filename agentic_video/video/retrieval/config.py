"""Settings of frame retrieval by text."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

_SCHEMAS = ("local-dir:", "hf-hub:")

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]


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
    """

    model: str = ""
    pretrained: str = ""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    num_gpus: Annotated[float, Field(ge=0)] = 0.0
    threads: Positive = 2
    batch_size: Positive = 32
    wait_ms: Annotated[float, Field(ge=0)] = 5.0
    max_bytes: NotNegative = 256 * 2**20
    max_texts: NotNegative = 4096
    cache_dir: str = ""
    cache_bytes: NotNegative = 10 * 2**30
    max_prompt_chars: Positive = 256
    start_seconds: Annotated[float, Field(gt=0)] = 600.0

    def __post_init__(self) -> None:
        if self.model.startswith(_SCHEMAS) and self.pretrained:
            raise ValueError(f"pretrained must be empty: {self.model} has its own weights")
        if self.model and not self.model.startswith(_SCHEMAS) and not self.pretrained:
            raise ValueError(f"model {self.model} needs pretrained: a tag of open_clip or a checkpoint file")
        if self.num_gpus and self.device == "cpu":
            raise ValueError(f"num_gpus must be 0 with device cpu, got {self.num_gpus}")
