"""vLLM's own model in this process, put to sleep as a GPU's worker is: ``python -m``.

Arguments: a folder, and a model (a tiny one of benchmarks/gpu/shapes.py). Memory that goes comes back as NaN. Prints a
line of JSON.
"""

import gc
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from agentic_video.training.seams.vllm_sleep import SleepingMemory, keep_state, unnamed_memory
from benchmarks.gpu.shapes import write_checkpoint
from tests.training.programs import report

BATCHED = 64


def live() -> dict[int, torch.Tensor]:
    """A tensor of each memory that there is, by address."""
    found = {}
    for item in gc.get_objects():
        if type(item) in (torch.Tensor, torch.nn.Parameter) and item.device.type == "cpu" and item.untyped_storage():
            found[item.untyped_storage().data_ptr()] = item
    return found


def load(folder: Path) -> Any:
    from vllm.config import set_current_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model

    arguments = EngineArgs(
        model=str(folder),
        dtype="float32",
        enforce_eager=True,
        max_model_len=BATCHED,
        max_num_batched_tokens=BATCHED,
        skip_mm_profiling=True,
    )
    config = arguments.create_engine_config()
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{folder}/rendezvous", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)
        return get_model(vllm_config=config)


class Allocator:
    """Memory as vLLM's allocator lists it."""

    def __init__(self, memory: dict[int, torch.Tensor]):
        self.memory = memory
        self.pointer_to_data = {
            address: SimpleNamespace(handle=(0, item.untyped_storage().nbytes(), address, 0), tag="weights")
            for address, item in memory.items()
        }

    def lose(self) -> None:
        for item in self.memory.values():
            torch.empty(0, dtype=torch.uint8).set_(item.untyped_storage()).fill_(255)


def main() -> None:
    folder = write_checkpoint(Path(sys.argv[1]) / sys.argv[2], sys.argv[2], dtype="float32")
    before = live()
    model = load(folder)
    gc.collect()
    allocator = Allocator({address: item for address, item in live().items() if address not in before})

    class Worker:
        model_runner = SimpleNamespace(model=model)

        def sleep(self, level: int = 1) -> None:
            self.buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
            allocator.lose()

        def wake_up(self, tags: list[str] | None = None) -> None:
            for name, buffer in model.named_buffers():
                buffer.copy_(self.buffers[name])

    inputs = getattr(model, "deepstack_input_embeds", [])
    plain, kept = Worker(), SimpleNamespace(Worker=type("Worker", (Worker,), {}))
    kept.get_mem_allocator_instance = lambda: allocator
    keep_state(kept)  # type: ignore[arg-type]
    unnamed = {part.data_ptr() for _, part in unnamed_memory([model], SleepingMemory(allocator.pointer_to_data))}
    others = {address: allocator.memory[address].clone() for address in unnamed}
    worker = kept.Worker()
    worker.sleep(level=2)
    lost = [bool(item.isnan().all()) for item in inputs]
    worker.wake_up(tags=["weights"])
    same = all(torch.equal(allocator.memory[address], other) for address, other in others.items())
    found = [float(item.abs().max()) for item in inputs]
    plain.sleep(level=2)
    plain.wake_up(tags=["weights"])
    report(
        {
            "deepstack": len(inputs),
            "unnamed": [item.data_ptr() in unnamed for item in inputs],
            "others": len(unnamed) - len(inputs),
            "lost": lost,
            "with": found,
            "same": same,
            "without": [bool(item.isnan().all()) for item in inputs],
        }
    )
    os._exit(0)  # what was lost last can't be freed: kernels' own addresses were among it


if __name__ == "__main__":
    main()
