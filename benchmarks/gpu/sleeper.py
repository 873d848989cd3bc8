"""Worker extension of :func:`benchmarks.gpu.measure.sleep_and_wake`, and a LoRA adapter of random weights."""

import json
from pathlib import Path
from typing import Any

from agentic_video.training.vllm_plugin import install

EXTENSION = "benchmarks.gpu.sleeper.SleepExtension"
"""For vLLM's ``worker_extension_cls``."""

install()  # a checkout's plugin isn't found by its entry point


class SleepExtension:
    """Mixed into a worker."""

    model_runner: Any
    kept_tensors: list[Any]

    def spoil_memory(self) -> None:
        """Have memory that comes back hold NaN, as it may, where fresh pages of a GPU mostly hold zeros."""
        from vllm.v1.worker import gpu_worker

        allocator: Any = gpu_worker.get_mem_allocator_instance()
        wake = allocator.wake_up

        def wake_up(tags: list[str] | None = None) -> None:
            wake(tags)
            for kept in self.kept_tensors:
                if tags is None or kept.part in tags:
                    kept.memory.fill_(255)

        allocator.wake_up = wake_up

    def kept_sizes(self) -> list[int]:
        """Bytes of each tensor that the worker keeps while it sleeps."""
        return [len(kept.memory) for kept in self.kept_tensors]


def write_adapter(folder: Path, model: Path, rank: int = 8) -> Path:
    """A LoRA adapter for the query and value projections of all layers, in PEFT's files; its folder."""
    import torch
    from safetensors.torch import save_file

    text = json.loads((model / "config.json").read_text(encoding="utf-8"))["text_config"]
    head = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    sizes = {"q_proj": text["num_attention_heads"] * head, "v_proj": text["num_key_value_heads"] * head}
    draws = torch.Generator().manual_seed(0)
    tensors = {}
    for layer in range(text["num_hidden_layers"]):
        for name, size in sizes.items():
            path = f"base_model.model.model.language_model.layers.{layer}.self_attn.{name}"
            tensors[f"{path}.lora_A.weight"] = torch.randn(rank, text["hidden_size"], generator=draws) / rank
            tensors[f"{path}.lora_B.weight"] = torch.randn(size, rank, generator=draws) / rank
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 4 * rank, "target_modules": sorted(sizes), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder
