import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agentic_video.training.seams import vllm_sleep
from agentic_video.training.seams.vllm_sleep import SleepingMemory, keep_state, sleep_between_messages, unnamed_memory
from agentic_video.utils.environment import LAPTOP_ENV
from tests.training.programs import result_of


class Allocator:
    """Memory as vLLM's allocator lists it; what goes comes back as 255 in each byte, NaN of floats."""

    def __init__(self, **parts: list[torch.Tensor]):
        self.tensors = parts
        self.pointer_to_data = {
            tensor.data_ptr(): SimpleNamespace(
                handle=(0, tensor.untyped_storage().nbytes(), tensor.data_ptr(), 0), tag=tag
            )
            for tag, tensors in parts.items()
            for tensor in tensors
        }

    def lose(self, *tags: str) -> None:
        for tag in tags:
            for tensor in self.tensors[tag]:
                tensor.view(torch.uint8).fill_(255)


class Model(torch.nn.Module):
    """Has a parameter, a buffer, and tensors that are neither."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("table", torch.ones(4))
        self.zeros = [torch.zeros(8)]
        self.scales = {"of a layer": (torch.arange(6.0),)}
        self.cache = torch.ones(64)
        self.counts = torch.arange(3.0)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def allocator(model: Model) -> Allocator:
    (scales,) = model.scales["of a layer"]
    return Allocator(
        weights=[model.weight.data, model.table, model.zeros[0], scales],  # type: ignore[list-item]
        kv_cache=[model.cache, model.counts],
    )


@pytest.fixture
def worker(model: Model, allocator: Allocator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A worker that loses what vLLM's loses."""
    monkeypatch.setattr(vllm_sleep, "MOST_KV_BYTES", 32)

    class Worker:
        model_runner = SimpleNamespace(model=model)

        def sleep(self, level: int = 1) -> None:
            allocator.lose("kv_cache", *(["weights"] if level == 2 else []))

        def wake_up(self, tags: list[str] | None = None) -> None:
            pass

    module = SimpleNamespace(Worker=Worker, get_mem_allocator_instance=lambda: allocator)
    keep_state(module)  # type: ignore[arg-type]
    yield module.Worker()


def test_unnamed_memory_is_what_is_neither_parameter_nor_buffer(model: Model, allocator: Allocator) -> None:
    view = model.zeros[0][2:]  # the same memory
    found = unnamed_memory([model], SleepingMemory(allocator.pointer_to_data))
    (scales,) = model.scales["of a layer"]
    parts = {"weights": (model.zeros[0], scales), "kv_cache": (model.cache, model.counts)}
    expected = {(part, tensor.data_ptr()) for part, tensors in parts.items() for tensor in tensors}
    assert len(expected) == 4 and {(part, memory.data_ptr()) for part, memory in found} == expected
    assert view.data_ptr() != model.zeros[0].data_ptr()


def test_a_deep_sleep_loses_only_what_a_weight_sync_brings(model: Model, worker: Any) -> None:
    worker.sleep(level=2)
    (scales,) = model.scales["of a layer"]
    assert model.zeros[0].isnan().all() and scales.isnan().all()
    worker.wake_up(tags=["weights"])
    assert (model.zeros[0].tolist(), scales.tolist()) == ([0.0] * 8, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert model.weight.isnan().all() and model.counts.isnan().all()  # not yet
    worker.wake_up(tags=["kv_cache"])
    assert model.counts.tolist() == [0.0, 1.0, 2.0]
    assert model.cache.isnan().all()  # larger than what is kept


def test_a_light_sleep_keeps_tensors_outside_the_cache(model: Model, worker: Any) -> None:
    worker.sleep(level=1)
    model.zeros[0].fill_(7.0)  # vLLM itself brings back what was loaded
    worker.wake_up()
    assert model.counts.tolist() == [0.0, 1.0, 2.0]
    assert model.zeros[0].tolist() == [7.0] * 8


def test_addresses_between_allocations_are_elsewhere() -> None:
    memory = SleepingMemory({100: SimpleNamespace(handle=(0, 50, 100, 0), tag="weights")})
    assert [memory.part_of(address) for address in (99, 100, 149, 150)] == [None, "weights", "weights", None]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "levels"), [("tiny-qwen3_vl", 1), ("tiny", 0)])
def test_vllms_models_wake_unchanged(model: str, levels: int, tmp_path: Path) -> None:
    """Qwen3-VL's deepstack inputs come back as NaN without the hook, and as zeros with it."""
    found = result_of("tests.training.sleepers", str(tmp_path), model, environment=LAPTOP_ENV)
    assert found["deepstack"] == levels
    assert found["unnamed"] == found["lost"] == found["without"] == [True] * levels
    assert found["with"] == [0.0] * levels
    assert found["same"]


class Condition:
    """The part of vLLM's SpinCondition that waits."""

    def __init__(self) -> None:
        self.last_read = time.monotonic()
        self.busy_loop_s = 1.0
        self.polled: list[int | None] = []
        self.spun = 0

    def wait(self, timeout_ms: int | None = None) -> None:
        if time.monotonic() <= self.last_read + self.busy_loop_s:
            self.spun += 1
        else:
            self.polled.append(timeout_ms)


def test_it_polls_briefly_where_vllm_spins_and_as_before_later() -> None:
    module = SimpleNamespace(SpinCondition=type("SpinCondition", (Condition,), {}))
    sleep_between_messages(module)  # type: ignore[arg-type]
    condition = module.SpinCondition()
    condition.wait(None)
    condition.last_read -= 10
    condition.wait(700)
    condition.wait(None)
    assert condition.spun == 0
    assert condition.polled == [5, 700, None]
    assert condition.busy_loop_s == 1.0
