"""Process groups' timeouts, and the actor workers that set them."""

import warnings
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed import distributed_c10d
from verl.workers.engine_workers import ActorRolloutRefWorker

from agentic_video.training.engines import process_group
from agentic_video.training.engines.actor import freeze_vision
from agentic_video.training.ppo.workers import VideoActorWorker, VideoDetachWorker, _save_copies
from agentic_video.training.seams.patches import on_cpu
from tests.config.configs import composed


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    monkeypatch.setenv(process_group.PATIENCE_ENV, "")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda **kwargs: asked.update(kwargs))
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "0")
    return asked


def test_ranks_wait_half_an_hour(asked: dict[str, Any]) -> None:
    for join in (process_group.join_ray_group, process_group.join_torchrun_group):
        asked.clear()
        join()
        assert asked["timeout"] == timedelta(minutes=30)
        assert (asked["backend"] == "gloo") == on_cpu()


@pytest.mark.parametrize("worker", [VideoActorWorker, VideoDetachWorker])
def test_a_worker_heeds_verls_keys(
    worker: type, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = "actor_rollout_ref.nccl_timeout=900", "actor_rollout_ref.actor.freeze_vision_tower=True"
    model = torch.nn.ModuleDict({"visual": torch.nn.Linear(1, 1), "text": torch.nn.Linear(1, 1)})
    model.config = SimpleNamespace(model_type="qwen2_5_vl")

    def init_model(self: Any) -> None:
        self.actor = type("Actor", (), {"engine": type("Engine", (), {"module": model})})

    monkeypatch.setattr(ActorRolloutRefWorker, "init_model", init_model)
    made: Any = worker.__new__(worker)
    made.config = composed("videozoomer", "cluster", *overrides).actor_rollout_ref
    made.init_model()
    assert asked["timeout"] == timedelta(minutes=15)
    assert [name for name, weight in model.named_parameters() if weight.requires_grad] == ["text.weight", "text.bias"]


def test_torch_takes_a_new_timeout_of_a_group(one_rank: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # where it has no effect torch only warns
        distributed_c10d._set_pg_timeout(timedelta(seconds=5))


def test_ranks_wait_longer_for_a_disk(one_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[timedelta] = []
    monkeypatch.setenv(process_group.PATIENCE_ENV, "")
    monkeypatch.setattr(distributed_c10d, "_set_pg_timeout", limits.append)
    with pytest.raises(OSError), process_group.disk_patience():
        raise OSError("no space left")
    # 33 GB at 10 MB/s take 55 minutes
    assert timedelta(hours=1) < limits[0] <= timedelta(hours=10) and limits[1:] == [timedelta(minutes=30)]


def test_offloaded_weights_are_saved_as_copies(one_rank: None) -> None:
    """As verl's trainer with separate GPUs for rollouts does within a step of several updates."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from verl.utils.fsdp_utils import fsdp2_sharded_load_from_cpu

    model = fully_shard(torch.nn.Linear(2, 1, bias=False), mesh=init_device_mesh("cpu", (1,)))
    weight: Any = model.weight
    weight._local_tensor.data.fill_(0.0)
    at_first = _save_copies(model)
    for update in (1.0, 2.0, 3.0):
        weight._local_tensor.data.add_(1.0)
        now = _save_copies(model)
        fsdp2_sharded_load_from_cpu(model, *at_first)
        assert weight._local_tensor.tolist() == [[0.0, 0.0]]
        fsdp2_sharded_load_from_cpu(model, *now)
        assert weight._local_tensor.tolist() == [[update, update]]


def test_a_merger_may_be_trained_while_its_tower_is_frozen() -> None:
    parts = {"blocks": torch.nn.Linear(5, 3), "merger": torch.nn.Linear(3, 2)}
    parts["deepstack_merger_list"] = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
    others = {"text": torch.nn.Linear(3, 2), "visually": torch.nn.Linear(2, 2)}
    model = torch.nn.ModuleDict({"visual": torch.nn.ModuleDict(parts), **others})
    model.config = model["text"].config = SimpleNamespace(model_type="qwen3_vl")
    assert freeze_vision(model, merger=False) == 5 * 3 + 3
    trained = {name.rpartition(".")[0] for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {"visual.merger", "visual.deepstack_merger_list.0", "text", "visually"}
    with pytest.raises(ValueError, match="visual"):
        freeze_vision(model["text"])
