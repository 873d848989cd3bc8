from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist
import transfer_queue
from tensordict import NonTensorStack, TensorDict

from tests.toyworld.conftest import any_checkpoint, checkpoint, tokenizer
from tests.training.episodes import Queue
from tests.training.records import checkpoints, written
from tests.video.conftest import video

__all__ = ["any_checkpoint", "checkpoint", "checkpoints", "queue", "tokenizer", "video", "written"]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    held: Queue = {}

    def get(keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        assert select_fields == ["extra_fields"]
        return TensorDict({"extra_fields": NonTensorStack(*(held[key] for key in keys))}, [len(keys)])

    monkeypatch.setattr(transfer_queue, "kv_batch_get", get)
    return held


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
