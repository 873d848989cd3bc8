"""Each patch of verl, in verl itself where the tests' process loads it."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from itertools import count, islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import torch
import zmq
from tensordict import TensorDict

from agentic_video.toyworld.model import FAMILIES, FamilyName, ModelRecipe, build_model
from agentic_video.training.seams import patches, weight_transfer
from tests.config.configs import composed

CPU_ONLY = pytest.mark.skipif(not patches.on_cpu(), reason="runs where verl runs without GPUs")


@pytest.mark.ray
def test_two_runs_on_one_cluster_have_a_queue_of_rollouts_each() -> None:
    command = [sys.executable, "-m", "tests.training.queues"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    first, second, then = json.loads(done.stdout.splitlines()[-1])
    assert (first, second, then) == (["first"], ["second"], ["first"])


@CPU_ONLY
def test_offload_policy_does_not_pin() -> None:
    import torch.distributed.fsdp as fsdp
    import verl  # noqa: F401  (has the patch installed)

    assert fsdp.CPUOffloadPolicy(pin_memory=True).pin_memory is False


@CPU_ONLY
def test_process_group_is_asked_for_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    import verl.utils.distributed as distributed

    asked = {}
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda **kwargs: asked.update(kwargs))
    distributed.initialize_global_process_group_ray()
    assert asked["backend"] == "gloo"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What torch is asked for when a process group is made."""
    asked: dict[str, Any] = {}
    monkeypatch.delenv(patches.PATIENCE_ENV, raising=False)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda **kwargs: asked.update(kwargs))
    return asked


def test_a_hang_costs_half_an_hour(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import verl.utils.distributed as distributed

    distributed.initialize_global_process_group_ray(timeout_second=None)
    assert asked["timeout"] == timedelta(minutes=30)
    distributed.initialize_global_process_group_ray(timeout_second=60)
    assert asked["timeout"] == timedelta(seconds=60)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "0")
    distributed.initialize_global_process_group()  # SFT's
    assert asked["timeout"] == timedelta(minutes=30)


def test_verl_s_key_sets_how_long_ranks_wait(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import verl.utils.distributed as distributed

    class ActorRolloutRefWorker:
        config = composed("videozoomer", "cluster", "actor_rollout_ref.nccl_timeout=900").actor_rollout_ref

        def init_model(self) -> None:
            distributed.initialize_global_process_group_ray(timeout_second=None)

    workers: Any = SimpleNamespace(ActorRolloutRefWorker=ActorRolloutRefWorker)
    monkeypatch.setenv(patches.PATIENCE_ENV, "")
    patches.heeded_timeout(workers)
    workers.ActorRolloutRefWorker().init_model()
    assert asked["timeout"] == timedelta(minutes=15)


def test_ranks_wait_longer_for_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """33 GB at 10 MB/s take 55 minutes; afterwards a hang costs half an hour again, whether it was written or not."""
    from torch.distributed import distributed_c10d

    limits: list[timedelta] = []

    class FSDPCheckpointManager:
        def save_checkpoint(self, path: str) -> None:
            limits.append(timedelta(0))
            raise OSError("no space left")

        def load_checkpoint(self, path: str) -> str:
            limits.append(timedelta(0))
            return path

    monkeypatch.delenv(patches.PATIENCE_ENV, raising=False)
    monkeypatch.setattr(distributed_c10d, "_set_pg_timeout", limits.append)
    module: Any = SimpleNamespace(FSDPCheckpointManager=FSDPCheckpointManager)
    patches.patient_checkpoints(module)
    manager = module.FSDPCheckpointManager()
    assert manager.load_checkpoint("alone") == "alone" and limits == [timedelta(0)]
    limits.clear()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        assert manager.load_checkpoint("here") == "here"
        with pytest.raises(OSError, match="space"):
            manager.save_checkpoint("here")
    finally:
        torch.distributed.destroy_process_group()
    during, _, after = limits[:3]
    assert timedelta(hours=1) < during <= timedelta(hours=10) and after == timedelta(minutes=30)
    assert limits == [during, timedelta(0), after] * 2


def test_torch_still_takes_a_new_limit_for_a_group(tmp_path: Path) -> None:
    from torch.distributed import distributed_c10d

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # where it is of no use torch only warns
            distributed_c10d._set_pg_timeout(timedelta(seconds=5))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("kind", ["ReplayBuffer", "ReplayBufferAsync"])
def test_a_group_that_stays_under_way_ends_the_run(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's own loop, over a queue in which one group's last status was lost."""
    import verl.trainer.ppo.v1.replay_buffer as replay_buffer

    tags = {
        "done": {"is_prompt": True, "status": "finished", "global_steps": 1},
        "done_0_0": {"status": "success"},
        "lost": {"is_prompt": True, "status": "running", "global_steps": 1},
    }
    polls = count()
    clock = SimpleNamespace(now=0.0)

    def listed() -> Any:
        if next(polls) == 40:
            tags["lost_0_0"] = {"status": "success"}  # a rollout has ended: progress
        return {"train": tags}

    def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(replay_buffer.tq, "kv_list", listed)
    monkeypatch.setattr(replay_buffer, "time", SimpleNamespace(sleep=sleep, time=lambda: clock.now))
    monkeypatch.setattr(patches, "time", SimpleNamespace(monotonic=lambda: clock.now))
    buffer = replay_buffer_of(kind)
    buffer.poll_interval, buffer.stall_seconds = 2.0, 100.0
    with pytest.raises(RuntimeError, match=r"could not go on.* 100 s.*1 groups.*lost.*agentic_video\.stall_seconds"):
        buffer.sample(global_steps=1, partition_id="train", batch_size=2)
    # 40 polls, then 100 s without a change
    assert clock.now == pytest.approx(40 * 2 + 100, abs=4)


def test_a_run_may_be_told_to_wait_on() -> None:
    buffer = replay_buffer_of("ReplayBuffer")
    buffer.running_keys["train"], buffer.stall_seconds = {"a"}, 0.0
    for now in (0.0, 1e9):
        patches.check_progress(buffer, "train", now)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Weights & Biases as verl's tracking starts it: the id that a run has."""
    for name in ("WANDB_RUN_ID", "WANDB_RESUME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    class Tracking:
        def __init__(self, project: str, experiment: str, default_backend: Any = "console", config: Any = None):
            self.id, self.resume = os.environ.get("WANDB_RUN_ID"), os.environ.get("WANDB_RESUME")

    module: Any = SimpleNamespace(Tracking=Tracking)
    patches.same_wandb_run(module)

    def start(folder: Path, backends: Any = ("console", "wandb"), given: str = "", **trainer: Any) -> Any:
        os.environ.pop("WANDB_RUN_ID", None)
        if given:
            os.environ["WANDB_RUN_ID"] = given
        config = {"trainer": {"default_local_dir": str(folder), "resume_mode": "auto", **trainer}}
        found = module.Tracking("p", "e", backends, config)
        assert not found.id or given or found.resume == "allow"
        return found.id

    return start


def checkpoint(folder: Path) -> None:
    step = folder / "global_step_3"
    for file in ("actor/model_world_size_1_rank_0.pt", "data.pt"):
        (step / file).parent.mkdir(parents=True, exist_ok=True)
        torch.save({}, step / file)
    (folder / "latest_checkpointed_iteration.txt").write_text("3")


def test_a_resumed_run_is_the_same_one_to_wandb(wandb: Callable[..., str], tmp_path: Path) -> None:
    first, other = tmp_path / "first", tmp_path / "other"
    began = wandb(first)
    assert began and wandb(first) != began  # without a checkpoint it begins anew
    began = wandb(first)
    checkpoint(first)
    assert wandb(first) == wandb(first, backends="wandb") == began
    assert wandb(first, resume_mode="resume_path", resume_from_path=f"{first}/global_step_3") == began
    assert wandb(other, resume_mode="resume_path", resume_from_path=f"{first}/global_step_3") not in ("", None, began)
    assert wandb(first, given="mine") == "mine"
    assert wandb(first, resume_mode="disable") != began
    assert wandb(tmp_path / "none", backends=["console"]) is None and not (tmp_path / "none").exists()


def positions(*lengths: int) -> list[torch.Tensor]:
    return [torch.arange(4 * length).reshape(4, length) + 100 * number for number, length in enumerate(lengths)]


@pytest.mark.parametrize("lengths", [(5, 5, 5), (3, 5, 4), (4, 4), (7,), (8, 8), (16, 16, 16, 16)])
def test_rope_positions_survive_rows_of_one_length(lengths: tuple[int, ...]) -> None:
    import verl.utils.tensordict_utils as tensordict_utils

    rows = positions(*lengths)
    for nested in (
        torch.nested.as_nested_tensor(rows, layout=torch.jagged),
        tensordict_utils.nested_tensor_from_tensor_list(rows, ragged_idx=2),
    ):
        data = TensorDict({"position_ids": nested}, batch_size=len(rows))
        tensordict_utils.maybe_fix_3d_position_ids(data)
        assert [row.tolist() for row in data["position_ids"].unbind()] == [row.tolist() for row in rows]


def test_other_positions_are_left_alone() -> None:
    import verl.utils.tensordict_utils as tensordict_utils

    flat = TensorDict({"position_ids": torch.arange(6).reshape(2, 3)}, batch_size=2)
    tensordict_utils.maybe_fix_3d_position_ids(flat)
    assert flat["position_ids"].tolist() == [[0, 1, 2], [3, 4, 5]]
    tensordict_utils.maybe_fix_3d_position_ids(TensorDict({}, batch_size=2))


def test_a_batch_without_images_goes_through_the_vision_tower(checkpoint: Path) -> None:
    """It changes nothing, and leaves a gradient of zero: all ranks gather the same weights."""
    import verl  # noqa: F401 (loads the plugin)
    from transformers import AutoModelForImageTextToText
    from verl.models.transformers.qwen2_vl import _get_input_embeds

    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).model
    ids = torch.tensor([[5, 6, 7]])
    embedded, _ = _get_input_embeds(model, ids, None, None, None, None, None)
    assert torch.equal(embedded, model.get_input_embeddings()(ids))
    embedded.sum().backward()
    gradients = [weight.grad for weight in model.visual.parameters()]
    assert any(gradient is not None for gradient in gradients)
    assert all(gradient is None or not gradient.any() for gradient in gradients)


@pytest.mark.parametrize("broken", ["processor", "class"])
def test_a_model_that_sees_is_not_trained_without_its_processor(broken: str, checkpoint: Path, tmp_path: Path) -> None:
    """verl warns, has no processor then, and goes on with text."""
    from verl.utils import hf_processor

    folder = tmp_path / "copy"
    shutil.copytree(checkpoint, folder)
    assert hf_processor(str(folder)) is not None
    file = folder / "processor_config.json"
    values = json.loads(file.read_text())
    if broken == "processor":
        values["image_processor"]["size"] = {"height": 4}
    else:
        values["processor_class"] = "LlavaProcessor"
    file.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="text alone") as caught:
        hf_processor(str(folder))
    assert str(folder) in str(caught.value)


def test_a_model_of_text_needs_no_processor(tmp_path: Path) -> None:
    from verl.utils import hf_processor

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    assert hf_processor(str(tmp_path)) is None


def test_poll_interval_is_set_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    class Buffer:
        def __init__(self, poll_interval: float = 2.0):
            self.poll_interval = poll_interval

    module = type("module", (), {"ReplayBuffer": Buffer})
    monkeypatch.delenv("AGENTIC_VIDEO_POLL_SECONDS", raising=False)
    patches.poll_interval(module)  # type: ignore[arg-type]
    assert Buffer().poll_interval == 2.0
    monkeypatch.setenv("AGENTIC_VIDEO_POLL_SECONDS", "0.1")
    patches.poll_interval(module)  # type: ignore[arg-type]
    assert Buffer().poll_interval == 0.1
    assert Buffer(poll_interval=1.0).poll_interval == 1.0


@CPU_ONLY
def test_log_probabilities_are_those_of_log_softmax() -> None:
    import verl.utils.torch_functional as torch_functional

    torch.manual_seed(0)
    logits = (torch.randn(7, 11) * 5).requires_grad_()
    labels = torch.randint(11, (7,))
    expected = torch.log_softmax(logits, dim=-1)[torch.arange(7), labels]
    found = torch_functional.logprobs_from_logits(logits, labels)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(value.sum(), logits, retain_graph=True)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients)


def replay_buffer_of(kind: str, refill: bool = True) -> Any:
    import verl.trainer.ppo.v1.replay_buffer as replay_buffer
    from omegaconf import OmegaConf

    return getattr(replay_buffer, kind)(
        trainer_mode="sync",
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=None,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create({}),
        refill_fn=lambda count: None,
        gen_batch_size=1,
        sync_refill_failed_groups=refill,
    )


def test_groups_that_failed_in_part_are_replaced_too() -> None:
    def reasons(partition: str, refill: bool) -> Any:
        buffer = replay_buffer_of("ReplayBuffer", refill)
        buffer.failure_keys[partition] = {"partly", "wholly"}
        buffer.partitions[partition] = {"partly_0_0": {}}
        return buffer._terminal_eviction_reasons(1, partition)

    assert reasons("train", refill=True) == (set(), set(), {"partly", "wholly"}, Counter())
    assert reasons("val", refill=True)[2] == set()
    assert reasons("train", refill=False)[2] == set()


def test_a_run_whose_groups_all_fail_ends() -> None:
    buffer = SimpleNamespace(train_batch_size=10)
    done: set[str] = set()
    names = (str(number) for number in count())

    def fail(groups: int) -> set[str]:
        failed = set(islice(names, groups))
        patches.count_failures(buffer, done, failed)
        return failed

    fail(29)
    done = {"a"}
    seen = fail(20)  # one was played to its end meanwhile
    patches.count_failures(buffer, done, seen)  # verl has only looked
    fail(9)
    done = set()  # taken for a step
    fail(0)
    with pytest.raises(RuntimeError, match="could not go on: 30 groups of episodes failed, one after the other"):
        fail(1)


@pytest.mark.parametrize("kind", ["ReplayBuffer", "ReplayBufferAsync"])
def test_either_of_verls_buffers_counts_failures(kind: str) -> None:
    buffer = replay_buffer_of(kind)
    buffer.failure_keys["train"] = {str(number) for number in range(23)}
    assert len(buffer._terminal_eviction_reasons(1, "train")[2]) == 23
    buffer.failure_keys["train"] = {"x"}
    with pytest.raises(RuntimeError, match="24 groups"):
        buffer._terminal_eviction_reasons(1, "train")


def test_merged_lora_is_what_peft_merges() -> None:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)

    def make() -> torch.nn.Module:
        torch.manual_seed(1)
        return torch.nn.ModuleDict({"visual": torch.nn.Linear(5, 5), "text": torch.nn.Linear(5, 3)})

    config = LoraConfig(r=2, lora_alpha=6, target_modules=["visual", "text"], exclude_modules=".*visual.*")
    model = get_peft_model(make(), config)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter)
    merged = patches.merge_lora(model.state_dict(), 6 / 2)
    expected = model.merge_and_unload().state_dict()
    assert set(merged) == set(expected) == set(make().state_dict())
    assert not torch.equal(merged["text.weight"], make().state_dict()["text.weight"])
    for name, weight in expected.items():
        assert torch.allclose(merged[name], weight, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_lora_as_the_recipes_set_it(family: FamilyName, tokenizer: Any) -> None:
    """The real classes, small: adapters where vLLM applies them, merged under the model's own names."""
    from peft import LoraConfig, get_peft_model

    chosen = composed("videozoomer", "laptop", "data.train_files=none").actor_rollout_ref.model
    plain = build_model(tokenizer, ModelRecipe(family=family))
    before = {name: weight.clone() for name, weight in plain.state_dict().items()}
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=2,
        lora_alpha=8,
        target_modules=chosen.target_modules,
        exclude_modules=chosen.exclude_modules,
    )
    model = get_peft_model(plain, config)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained and not any("visual" in name for name in trained)
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in trained} == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    }
    for name, parameter in model.named_parameters():
        if name in trained:
            torch.nn.init.normal_(parameter)
    merged = patches.merge_lora(model.state_dict(), 8 / 2)
    assert set(merged) == set(before)
    changed = {name for name, weight in before.items() if not torch.equal(weight, merged[name])}
    assert changed == {name.removeprefix("base_model.model.").split(".lora_")[0] + ".weight" for name in trained}


def test_ranks_without_weights_merge_nothing() -> None:
    assert patches.merge_lora({}, 2.0) == {}


def test_offloaded_weights_are_put_aside_as_copies(tmp_path: Path) -> None:
    """As verl's trainer with GPUs of its own for rollouts does within a step of several updates."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from verl.utils.fsdp_utils import fsdp2_sharded_load_from_cpu, fsdp2_sharded_save_to_cpu

    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        model = fully_shard(torch.nn.Linear(2, 1, bias=False), mesh=init_device_mesh("cpu", (1,)))
        weight: Any = model.weight
        weight._local_tensor.data.fill_(0.0)
        at_first = fsdp2_sharded_save_to_cpu(model)
        for update in (1.0, 2.0, 3.0):
            weight._local_tensor.data.add_(1.0)
            now = fsdp2_sharded_save_to_cpu(model)
            fsdp2_sharded_load_from_cpu(model, *at_first)
            assert weight._local_tensor.tolist() == [[0.0, 0.0]]
            fsdp2_sharded_load_from_cpu(model, *now)
            assert weight._local_tensor.tolist() == [[update, update]]
    finally:
        dist.destroy_process_group()


def test_a_frozen_vision_tower_gets_no_gradient() -> None:
    model = torch.nn.ModuleDict(
        {"visual": torch.nn.Linear(5, 3), "text": torch.nn.Linear(3, 2), "visually": torch.nn.Linear(2, 2)}
    )
    assert patches.freeze_vision(model) == 5 * 3 + 3
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trained == ["text.weight", "text.bias", "visually.weight", "visually.bias"]
    with pytest.raises(ValueError, match="no module named 'visual'"):
        patches.freeze_vision(model["text"])


def test_a_merger_may_be_trained_while_its_tower_is_frozen() -> None:
    parts = {"blocks": torch.nn.Linear(5, 3), "merger": torch.nn.Linear(3, 2)}
    parts["deepstack_merger_list"] = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
    model = torch.nn.ModuleDict({"visual": torch.nn.ModuleDict(parts), "text": torch.nn.Linear(3, 2)})
    assert patches.freeze_vision(model, merger=False) == 5 * 3 + 3
    trained = {name.rpartition(".")[0] for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == {"visual.merger", "visual.deepstack_merger_list.0", "text"}


def test_verl_s_gap_of_probabilities_is_logged_turn_by_turn() -> None:
    from verl import DataProto
    from verl.trainer.ppo.v1 import trainer_base

    mask = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0]])
    actor = torch.log(torch.tensor([[0.5, 0.5, 0.9, 0.5], [0.5, 0.9, 0.9, 0.9]]))
    rollout = torch.log(torch.tensor([[0.5, 0.5, 0.1, 0.25], [0.5, 0.1, 0.1, 0.1]]))
    fields = {"old_log_probs": actor, "rollout_log_probs": rollout, "response_mask": mask, "responses": mask}
    found = trainer_base.calculate_debug_metrics(DataProto.from_dict(tensors=fields))
    assert found["training/rollout_probs_diff_mean"] == pytest.approx(0.25 / 4)
    assert found["training/rollout_probs_diff_turn/1"] == 0.0
    assert found["training/rollout_probs_diff_turn/2"] == pytest.approx(0.25)


def test_a_run_goes_on_from_a_whole_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from verl.utils.checkpoint.checkpoint_handler import find_latest_ckpt_path
    from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path as first

    assert find_latest_ckpt_path is first
    assert first(None) is None and first(str(tmp_path)) is None
    for step in (3, 4):
        folder = tmp_path / f"global_step_{step}"
        for file in ("actor/model_world_size_1_rank_0.pt", "data.pt"):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            torch.save({"step": step}, folder / file)
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    tracker.write_text("")
    assert first(str(tmp_path)) == str(folder)
    tracker.write_text("4")
    (folder / "data.pt").write_bytes((folder / "data.pt").read_bytes()[:-100])
    assert first(str(tmp_path)) == str(tmp_path / "global_step_3")
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"agentic_video could not resume from the newest checkpoint: {tracker} names no step",
        f"agentic_video could not resume from the newest checkpoint: {folder}: data.pt is cut short",
    ]


def test_a_run_that_goes_on_counts_the_checkpoints_from_before(tmp_path: Path) -> None:
    from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager

    class Manager(BaseCheckpointManager):
        def __init__(self) -> None:
            self.previous_saved_paths: list[str] = []

        def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
            assert Path(local_path).is_dir()

        def save_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
            self.ensure_checkpoint_capacity(3)
            Path(local_path).mkdir(parents=True)
            (Path(local_path) / "model_world_size_1_rank_0.pt").touch()
            (Path(local_path).parent / "transfer_queue" / "simple_storage").mkdir(parents=True)
            self.register_checkpoint(local_path, 3)

    patches.kept_checkpoints(SimpleNamespace(FSDPCheckpointManager=Manager))  # type: ignore[arg-type]

    def attempt(run: str, resumed: str, *steps: int) -> None:
        manager = Manager()
        if resumed:
            manager.load_checkpoint(str(tmp_path / resumed / "actor"))
        for step in steps:
            manager.save_checkpoint(str(tmp_path / run / f"global_step_{step}" / "actor"))

    def left(run: str) -> list[int]:
        of_actor, of_rollouts = (
            sorted(int(folder.parent.name.removeprefix("global_step_")) for folder in tmp_path.glob(f"{run}/*/{name}"))
            for name in ("actor", "transfer_queue")
        )
        assert of_actor == of_rollouts  # of asynchronous trainers
        return of_actor

    attempt("a", "", 20, 40, 60, 80)
    attempt("a", "a/global_step_80", 100)
    attempt("a", "a/global_step_100", 120)
    assert left("a") == [80, 100, 120]
    # another run that begins from there leaves them alone
    attempt("b", "a/global_step_120", 140, 160, 180, 200)
    assert (left("a"), left("b")) == ([80, 100, 120], [160, 180, 200])


def test_two_clusters_on_a_machine_have_sockets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from verl.workers.rollout.vllm_rollout import utils

    class ServerAdapter:
        def __init__(self, rank: int):
            job = ray.get_runtime_context().get_job_id()
            self.zmq_handle = f"ipc:///tmp/rl-colocate-zmq-{job}-replica-0-rank-{rank}.sock"

    patches.own_weight_socket(SimpleNamespace(ServerAdapter=ServerAdapter))  # type: ignore[arg-type]

    def sockets(node: str) -> tuple[str, str]:
        """What the actor's side and vLLM's take on a node."""
        context = SimpleNamespace(get_job_id=lambda: "01000000", get_node_id=lambda: node)
        monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
        monkeypatch.setenv("VERL_RAY_JOB_ID", patches.unique_job())
        monkeypatch.setenv("VERL_REPLICA_RANK", "0")
        worker = SimpleNamespace(local_rank=1, model_runner=None)
        return ServerAdapter(1).zmq_handle, utils.vLLMColocateWorkerExtension._get_zmq_handle(worker)

    first, second = sockets("ab" * 28), sockets("cd" * 28)
    assert first[0] == first[1] != second[0] == second[1]
    # a name of a socket has 107 characters at most
    assert len(first[0].removeprefix("ipc://")) < 80


def engine_that(load: Callable[[Any], None]) -> tuple[ModuleType, Any]:
    """verl's module for vLLM's weights, patched, and an actor's side whose engine does this with the
    socket that it connects to."""
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

    class Task:
        def __init__(self, handle: str):
            self.handle = handle

        def future(self) -> Future[None]:
            def run() -> None:
                with zmq.Context() as context, context.socket(zmq.REP) as socket:
                    socket.connect(self.handle)
                    load(socket)

            return ThreadPoolExecutor(1).submit(run)

    class ServerAdapter:
        zmq_handle = f"ipc:///tmp/agentic-video-test-{uuid4().hex}.sock"

        async def _execute_method(self, method: str, non_block: bool = False, kwargs: Any = None) -> Task:
            assert (method, non_block, kwargs) == ("update_weights_from_ipc", True, {"use_shm": True})
            return Task(self.zmq_handle)

    module = SimpleNamespace(ServerAdapter=ServerAdapter, BucketedWeightSender=BucketedWeightSender)
    patches.failed_weights(module)  # type: ignore[arg-type]
    return module, ServerAdapter()  # type: ignore[return-value]


def send_weights(load: Callable[[Any], None]) -> None:
    """What verl's actor does with two weights in buckets of a megabyte."""
    module, adapter = engine_that(load)

    async def send() -> None:
        await adapter._execute_method("update_weights_from_ipc", non_block=True, kwargs={"use_shm": True})
        sender = module.BucketedWeightSender(adapter.zmq_handle, bucket_size_mb=1, use_shm=True)
        await sender.async_send_weights(iter([("a", torch.ones(200_000)), ("b", torch.zeros(200_000))]))

    asyncio.run(send())


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_an_engine_that_fails_to_load_weights_ends_the_wait(answers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_transfer, "LOOK_MS", 20)

    def load(socket: Any) -> None:
        for _ in range(answers):
            socket.recv_pyobj()
            socket.send(b"")
        socket.recv_pyobj()
        raise AssertionError("param_data.shape == loaded_weight.shape")

    with pytest.raises(AssertionError, match=r"param_data\.shape"):
        send_weights(load)


def test_an_engine_that_ends_without_an_answer_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_transfer, "LOOK_MS", 20)
    monkeypatch.setattr(weight_transfer, "LATE_MS", 50)
    with pytest.raises(RuntimeError, match="ended before it had all of them"):
        send_weights(lambda socket: socket.recv_pyobj())


def test_an_engine_that_takes_its_time_gets_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_transfer, "LOOK_MS", 20)
    got: list[tuple[list[str], bool]] = []

    def load(socket: Any) -> None:
        socket.recv_pyobj()
        socket.send(b"")
        while not got or not got[-1][1]:
            message = socket.recv_pyobj()
            got.append((list(message["bucket_meta"]), message["is_last"]))
            time.sleep(0.1)
            socket.send(b"")

    send_weights(load)
    assert got == [(["a"], False), (["b"], True)]
