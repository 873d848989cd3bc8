from typing import Any

import pytest
import transfer_queue
from tensordict import NonTensorStack, TensorDict

from tests.toyworld.conftest import any_checkpoint, checkpoint, tokenizer
from tests.training.episodes import Queue
from tests.video.conftest import video

__all__ = ["any_checkpoint", "checkpoint", "queue", "tokenizer", "video"]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    """What the transfer queue holds, by key."""
    held: Queue = {}

    def get(keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        assert select_fields == ["extra_fields"]
        return TensorDict({"extra_fields": NonTensorStack(*(held[key] for key in keys))}, [len(keys)])

    monkeypatch.setattr(transfer_queue, "kv_batch_get", get)
    return held
