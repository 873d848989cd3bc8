"""The few places in verl that have no seam. Each patch is named, says why, and is tested; all are for verl 0.9.1."""

import os
import shutil
import sys
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from agentic_video.training.seams.weight_transfer import WatchedSocket
from agentic_video.utils.checkpoints import newest_whole, same_run, saved_before
from agentic_video.utils.errors import CANNOT_GO_ON, one_line

VERL_VERSION = "0.9.1"
"""The patches were written for this version; the plugin refuses to load with another."""
FAILED_BATCHES, LEAST_FAILED = 3, 24
"""So many batches of groups, and at least so many groups, may fail one after the other before a run ends."""

ROLLOUTS = "transfer_queue"
"""Folder of a checkpoint."""

PATIENCE_SECONDS = 1800
"""Time that a rank waits for another (``actor_rollout_ref.nccl_timeout`` of a run), unless one of them reads or writes
a checkpoint."""
PATIENCE_ENV = "AGENTIC_VIDEO_PATIENCE_SECONDS"
"""Sets it in processes that have no such key: SFT's and KTO's."""
CHECKPOINT_SECONDS = 7200
"""Time that ranks wait for one that reads or writes a checkpoint: 33 GB of a 7B model at 5 MB/s."""
STALL_SECONDS = 1800.0
"""Time without the end of any rollout after which a run ends (``agentic_video.stall_seconds``)."""


def on_cpu() -> bool:
    """Whether verl was told to run without accelerators."""
    return os.environ.get("VERL_PLATFORM", "").lower() == "cpu"


def patience() -> float:
    """Seconds that this process' collectives wait for other ranks."""
    return float(os.environ.get(PATIENCE_ENV) or PATIENCE_SECONDS)


def patient_process_group(distributed: ModuleType) -> None:
    """Ranks wait for each other for :func:`patience`.

    verl has a key for it (``actor_rollout_ref.nccl_timeout``) and nothing that reads it, so that torch's ten minutes
    hold, within which ranks of very different lengths may not be through; and SFT's ranks would wait for ten hours.
    """
    of_ray, of_torchrun = distributed.initialize_global_process_group_ray, distributed.initialize_global_process_group

    def initialize_global_process_group_ray(timeout_second: float | None = None, backend: str | None = None) -> Any:
        return of_ray(timeout_second=timeout_second or patience(), backend=backend)

    def initialize_global_process_group(timeout_second: float | None = None) -> Any:
        return of_torchrun(timeout_second=timeout_second or patience())

    distributed.initialize_global_process_group_ray = initialize_global_process_group_ray  # type: ignore[attr-defined]
    distributed.initialize_global_process_group = initialize_global_process_group  # type: ignore[attr-defined]


def heeded_timeout(engine_workers: ModuleType) -> None:
    """Have a worker's process group, which is made in ``init_model``, heed ``actor_rollout_ref.nccl_timeout``."""
    original = engine_workers.ActorRolloutRefWorker.init_model

    @wraps(original)
    def init_model(self: Any) -> None:
        if seconds := self.config.get("nccl_timeout"):
            os.environ[PATIENCE_ENV] = str(seconds)
        original(self)

    engine_workers.ActorRolloutRefWorker.init_model = init_model


@contextmanager
def _disk_patience() -> Iterator[None]:
    """Ranks wait for each other as long as for a slow disk."""
    from torch.distributed import distributed_c10d, is_initialized

    if not is_initialized():
        yield
        return
    distributed_c10d._set_pg_timeout(timedelta(seconds=max(patience(), CHECKPOINT_SECONDS)))
    try:
        yield
    finally:
        distributed_c10d._set_pg_timeout(timedelta(seconds=patience()))


def patient_checkpoints(fsdp_checkpoint_manager: ModuleType) -> None:
    """All ranks wait while rank 0 writes the Hugging Face checkpoint, 33 GB of a 7B model, and while each reads its
    shards: only then may one take as long as a slow file system does."""
    manager = fsdp_checkpoint_manager.FSDPCheckpointManager

    def patiently(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            with _disk_patience():
                return original(self, *args, **kwargs)

        return method

    manager.save_checkpoint, manager.load_checkpoint = map(
        patiently, (manager.save_checkpoint, manager.load_checkpoint)
    )


class _InNamespace:
    """Something of Ray's, one of whose methods looks in, or makes something in, another namespace."""

    def __init__(self, wrapped: Any, method: str, namespace: Callable[[], str]) -> None:
        self._wrapped, self._method, self._namespace = wrapped, method, namespace

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if name != self._method:
            return found
        return lambda *args, **kwargs: found(*args, **{**kwargs, "namespace": self._namespace()})


def own_queue(interface: ModuleType) -> None:
    """The queue of rollouts has one name, in one namespace, for all jobs of a Ray cluster: two runs at the same time
    would train on each other's rollouts. Give each job a namespace."""

    def namespace() -> str:
        return f"transfer_queue_{interface.ray.get_runtime_context().get_job_id()}"

    interface.ray = _InNamespace(interface.ray, "get_actor", namespace)  # type: ignore[attr-defined]
    interface.TransferQueueController = _InNamespace(  # type: ignore[attr-defined]
        interface.TransferQueueController, "options", namespace
    )


def gloo_process_group(distributed: ModuleType) -> None:
    """verl asks torch for "cpu:gloo,cpu:gloo", which torch refuses: ask for "gloo"."""
    original = distributed.initialize_global_process_group_ray

    def initialize_global_process_group_ray(timeout_second: float | None = None, backend: str | None = None) -> Any:
        return original(timeout_second=timeout_second, backend=backend or "gloo")

    distributed.initialize_global_process_group_ray = initialize_global_process_group_ray  # type: ignore[attr-defined]

    def initialize_global_process_group(timeout_second: float | None = None) -> tuple[int, int, int]:
        initialize_global_process_group_ray(timeout_second)
        rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        return local_rank, rank, world_size

    distributed.initialize_global_process_group = initialize_global_process_group  # type: ignore[attr-defined]


def unpinned_offload(fsdp: ModuleType) -> None:
    """verl's reference model always asks for pinned memory, which needs an accelerator."""
    original = fsdp.CPUOffloadPolicy

    class CPUOffloadPolicy(original):  # type: ignore[misc,valid-type]
        def __init__(self, pin_memory: bool = False):
            super().__init__(pin_memory=False)

    fsdp.CPUOffloadPolicy = CPUOffloadPolicy  # type: ignore[attr-defined]


def equal_length_positions(tensordict_utils: ModuleType) -> None:
    """Nested 3-D rope positions of rows that are all equally long, on any device.

    verl forces dimension 2 to be the ragged one; when all rows have the same length torch may have chosen dimension 1,
    and the forced index makes the actor's update fail. Such a tensor is built again with the right dimension.
    """

    def maybe_fix_3d_position_ids(data: Any) -> None:
        if "position_ids" not in data.keys():  # noqa: SIM118 (a TensorDict)
            return
        positions = data["position_ids"]
        if not (positions.is_nested and positions.dim() == 3):
            return
        values, offsets = positions._values, positions._offsets
        # Both may be the offsets' end, where rows are as long as there are positions in all: then it is the first.
        if values.shape[0] == int(offsets[-1]):
            rows = [values[start:end] for start, end in pairwise(offsets.tolist())]
            data["position_ids"] = tensordict_utils.nested_tensor_from_tensor_list(rows, ragged_idx=2)
        elif values.shape[1] == int(offsets[-1]):
            positions._ragged_idx = 2

    tensordict_utils.maybe_fix_3d_position_ids = maybe_fix_3d_position_ids  # type: ignore[attr-defined]


def text_only_batches(qwen2_vl: ModuleType) -> None:
    """Micro-batches of Qwen2.5-VL in which no sequence has an image, as when an agent answers before it looks.

    verl then runs the vision tower on an empty picture, so that all ranks do the same, and takes the mean of what comes
    back; with transformers 5 that is no tensor any more. Where there are images, verl unpacks it; so does this.
    """
    original = qwen2_vl._get_input_embeds

    class Unpacking:
        def __init__(self, model: Any):
            self._model = model

        def __getattr__(self, name: str) -> Any:
            return getattr(self._model, name)

        def visual(self, *args: Any, **kwargs: Any) -> Any:
            return qwen2_vl.unpack_visual_output(self._model.visual(*args, **kwargs))[0]

    @wraps(original)
    def _get_input_embeds(
        model: Any,
        input_ids: Any,
        attention_mask: Any = None,
        pixel_values: Any = None,
        pixel_values_videos: Any = None,
        *grids: Any,
        **more: Any,
    ) -> Any:
        if pixel_values is None and pixel_values_videos is None:
            model = Unpacking(model)
        return original(model, input_ids, attention_mask, pixel_values, pixel_values_videos, *grids, **more)

    qwen2_vl._get_input_embeds = _get_input_embeds  # type: ignore[attr-defined]


def vectorised_logprobs(torch_functional: ModuleType) -> None:
    """Log-probabilities of labels in one operation.

    To save GPU memory verl goes through float32 logits row by row; after padding is removed a row is a single token,
    and on a CPU tens of thousands of tiny operations take most of an update.
    """
    import torch

    def logprobs_from_logits_v2(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        chosen = torch.gather(logits, dim=-1, index=labels.unsqueeze(-1)).squeeze(-1)
        return chosen - torch.logsumexp(logits, dim=-1)

    torch_functional.logprobs_from_logits_v2 = logprobs_from_logits_v2  # type: ignore[attr-defined]


def failed_groups(replay_buffer: ModuleType) -> None:
    """``trainer.v1.sampler.sync_refill_failed_groups`` for groups that failed in part.

    verl replaces a failed group only when none of its rollouts is left. A group in which a judge gave no grade, or an
    engine failed, must not be trained on what is left of it either: VideoZoomer drops it whole.

    When all fail, verl would go on replacing them for ever: after :data:`FAILED_BATCHES` batches of groups without one
    that is played to its end, the run ends.
    """
    original = replay_buffer.ReplayBuffer._terminal_eviction_reasons

    def _terminal_eviction_reasons(self: Any, global_steps: int, partition_id: str) -> Any:
        stale, filtered, failed, counts = original(self, global_steps, partition_id)
        if partition_id != "val" and self.sync_refill_failed_groups:
            failed = set(self.failure_keys[partition_id])
            count_failures(self, self.finished_keys[partition_id], failed)
        return stale, filtered, failed, counts

    replay_buffer.ReplayBuffer._terminal_eviction_reasons = _terminal_eviction_reasons
    asynchronous = replay_buffer.ReplayBufferAsync._terminal_eviction_reasons

    def _terminal_eviction_reasons_async(self: Any, global_steps: int, partition_id: str) -> Any:
        reasons = asynchronous(self, global_steps, partition_id)
        if partition_id != "val":
            count_failures(self, self.finished_keys[partition_id], reasons[2])
        return reasons

    replay_buffer.ReplayBufferAsync._terminal_eviction_reasons = _terminal_eviction_reasons_async


def stalled_groups(replay_buffer: ModuleType) -> None:
    """verl waits without end for a group whose status stays "running", as when its last status is lost: once nothing of
    a part of the queue has changed for ``agentic_video.stall_seconds``, the run ends and names groups."""
    original = replay_buffer.ReplayBuffer._wait_for_next_poll

    @wraps(original)
    def _wait_for_next_poll(self: Any, partition_id: str, last_debug_time: float) -> float:
        check_progress(self, partition_id, time.monotonic())
        return float(original(self, partition_id, last_debug_time))

    replay_buffer.ReplayBuffer._wait_for_next_poll = _wait_for_next_poll


def check_progress(buffer: Any, partition_id: str, now: float) -> None:
    """Note what a part of the queue holds, and that it changes.

    Args:
        buffer: verl's replay buffer, with its snapshot of the queue; keeps what is noted.
        partition_id: Which part of the queue.
        now: Seconds, of a clock that only goes forward.

    Raises:
        RuntimeError: Nothing has changed for ``buffer.stall_seconds``.
    """
    waiting = buffer.pending_keys[partition_id] | buffer.running_keys[partition_id]
    over = buffer.finished_keys[partition_id] | buffer.failure_keys[partition_id]
    state = (partition_id, frozenset(buffer.partitions[partition_id]), frozenset(waiting), frozenset(over))
    known, since = getattr(buffer, "progress", (None, now))
    if known != state:
        since = now
    buffer.progress = state, since
    limit = getattr(buffer, "stall_seconds", STALL_SECONDS)
    if limit and now - since > limit:
        named = ", ".join(sorted(waiting)[:3]) or "none"
        raise RuntimeError(
            f"{CANNOT_GO_ON}: no rollout has ended for {limit:g} s, and {len(waiting)} groups are under way ({named}); "
            "log.txt may say where they hang (a reward, a tool, an engine). agentic_video.stall_seconds sets the time"
        )


def dropped_groups(replay_buffer: ModuleType) -> None:
    """Which groups ``algorithm.filter_groups`` drops, and what they count as.

    verl looks at the metric of all rollouts of a group. What teaches is what is left without those that aren't trained
    on (``System.untrained_ends``): a group in which fewer than two are, or in which these are all alike, must be
    replaced as one without signal. And verl counts dropped groups by that metric, whichever it is; here by their
    reward, so that the mean over all that was sampled is known.
    """
    from agentic_video.training.loop.untrained import reclassify
    from agentic_video.training.ppo.filtered_groups import name_by_reward

    original = replay_buffer.ReplayBuffer._dapo_filtered_keys

    def _dapo_filtered_keys(self: Any, partition_id: str) -> tuple[set[str], Counter[float]]:
        classified = self._dapo_classification_cache[partition_id]
        before = set(classified)
        found: tuple[set[str], Counter[float]] = original(self, partition_id)
        if partition_id == "val" or self.filter_groups_metric is None:
            return found
        new = set(classified) - before
        reclassify(self, partition_id, new)
        name_by_reward(self, partition_id, new)
        dropped = {uid: value for uid, value in classified.items() if value is not None}
        return set(dropped), Counter(dropped.values())

    replay_buffer.ReplayBuffer._dapo_filtered_keys = _dapo_filtered_keys


def limited_drops(replay_buffer: ModuleType) -> None:
    """``algorithm.filter_groups.max_num_gen_batches``, which verl has and ignores: without a limit the step of a policy
    that has all of its questions right, or all wrong, never ends.

    Once a step has dropped so many groups, its batch is filled with those that come, though they teach nothing. Those
    that teach something are chosen first.
    """
    from agentic_video.training.ppo.filtered_groups import kept_alike, limit_of, with_signal_first

    def limit(buffer: Any) -> None:
        original = buffer._terminal_eviction_reasons

        def _terminal_eviction_reasons(self: Any, global_steps: int, partition_id: str) -> Any:
            reasons = original(self, global_steps, partition_id)
            return reasons if partition_id == "val" else kept_alike(self, global_steps, partition_id, reasons)

        buffer._terminal_eviction_reasons = _terminal_eviction_reasons

    # each has its own
    limit(replay_buffer.ReplayBuffer)
    limit(replay_buffer.ReplayBufferAsync)
    evict = replay_buffer.ReplayBuffer._evict_terminal_groups
    select = replay_buffer.ReplayBuffer._select_prompt_uids

    def _evict_terminal_groups(self: Any, global_steps: int, partition_id: str, eviction_reasons: Any) -> Any:
        evicted = evict(self, global_steps, partition_id, eviction_reasons)
        if partition_id != "val" and (limit := limit_of(self, global_steps)):
            limit.dropped += evicted[2]
            limit.failed += len(eviction_reasons[2])
        return evicted

    def _select_prompt_uids(self: Any, partition_id: str, sampleable_keys: set[str], batch_size: int) -> Any:
        teaching, alike = with_signal_first(self, partition_id, sampleable_keys)
        chosen, *snapshots = select(self, partition_id, teaching, batch_size)
        filled, *_ = select(self, partition_id, alike, batch_size - len(chosen))
        return chosen + filled, *snapshots

    replay_buffer.ReplayBuffer._evict_terminal_groups = _evict_terminal_groups
    replay_buffer.ReplayBuffer._select_prompt_uids = _select_prompt_uids


def count_failures(buffer: Any, finished: set[str], failed: set[str]) -> None:
    """Count the groups that failed since the last one that didn't.

    Args:
        buffer: verl's replay buffer, which keeps the count.
        finished: The groups that were played to their end and weren't taken yet.
        failed: Those that failed and weren't dropped yet.

    Raises:
        RuntimeError: Too many failed, one after the other.
    """
    known_finished, known_failed, count = getattr(buffer, "failures_so_far", (set(), set(), 0))
    count = (0 if finished - known_finished else count) + len(failed - known_failed)
    buffer.failures_so_far = set(finished), set(failed), count
    most = max(LEAST_FAILED, FAILED_BATCHES * (buffer.train_batch_size or 0))
    if count >= most:
        raise RuntimeError(
            f"{CANNOT_GO_ON}: {count} groups of episodes failed, one after the other; "
            "log.txt says why (Error in _run_prompt)"
        )


def whole_checkpoints(checkpoint_manager: ModuleType) -> None:
    """verl goes on from the checkpoint that a file names, and fails when that file is empty or the checkpoint cut
    short, as a disk that was full leaves them: go on from the newest that is whole.

    Raises (what is patched in):
        DamagedCheckpoint: None is.
    """

    def find_latest_ckpt_path(path: str | None, directory_format: str = "global_step_{}") -> str | None:
        if path is None:
            return None
        step, passed_over = newest_whole(Path(path))
        if passed_over:
            print(f"agentic_video could not resume from the newest checkpoint: {passed_over}", flush=True)
        return None if step is None else str(step)

    checkpoint_manager.find_latest_ckpt_path = find_latest_ckpt_path  # type: ignore[attr-defined]


def kept_checkpoints(fsdp_checkpoint_manager: ModuleType) -> None:
    """verl keeps the last ``max_actor_ckpt_to_keep`` checkpoints of those that it wrote since it was started: each time
    that a run goes on, those from before stay for good, 100 GB each of a 7B model. Have it count them, too, where it
    goes on in their folder: those of another run, from which it may begin, are that run's.

    And of a checkpoint that it doesn't keep, verl leaves the rollouts that asynchronous trainers save beside the actor.
    """
    manager = fsdp_checkpoint_manager.FSDPCheckpointManager
    load, save, remove = manager.load_checkpoint, manager.save_checkpoint, manager.remove_previous_save_local_path

    @wraps(load)
    def load_checkpoint(self: Any, local_path: str, *args: Any, **kwargs: Any) -> Any:
        self.gone_on_from = local_path
        return load(self, local_path, *args, **kwargs)

    @wraps(save)
    def save_checkpoint(self: Any, local_path: str, *args: Any, **kwargs: Any) -> Any:
        before, self.gone_on_from = getattr(self, "gone_on_from", None), None
        if before and not self.previous_saved_paths and same_run(Path(before), Path(local_path)):
            self.previous_saved_paths = [str(path) for path in saved_before(Path(before))]
        return save(self, local_path, *args, **kwargs)

    @wraps(remove)
    def remove_previous_save_local_path(self: Any, path: str | list[str]) -> None:
        remove(self, path)
        for one in map(Path, [path] if isinstance(path, str) else path):
            if one.name == "actor":
                shutil.rmtree(one.with_name(ROLLOUTS), ignore_errors=True)

    manager.load_checkpoint, manager.save_checkpoint = load_checkpoint, save_checkpoint
    manager.remove_previous_save_local_path = remove_previous_save_local_path


def required_processor(tokenizer: ModuleType) -> None:
    """Have verl end where the processor of a model that sees can't be loaded, rather than train on text alone."""
    original = tokenizer.hf_processor

    @wraps(original)
    def hf_processor(name_or_path: str, **kwargs: Any) -> Any:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            processor = original(name_or_path, **kwargs)
        if processor is None and _sees(name_or_path, **kwargs):
            why = [str(one.message) for one in said if "processor" in str(one.message)] or ["it is none for pictures"]
            raise ValueError(
                f"{name_or_path}: the model sees pictures, and its processor can't be loaded, so that it would be "
                f"trained on text alone: {one_line(why[-1])}"
            )
        for one in said:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        return processor

    # Packages may have taken the name by now: verl loads its plugins late.
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "verl"]
    for module in (tokenizer, *modules):
        if vars(module).get("hf_processor") is original:
            vars(module)["hf_processor"] = hf_processor


def _sees(name_or_path: str, **kwargs: Any) -> bool:
    """Whether a model has a vision tower."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(name_or_path, trust_remote_code=kwargs.get("trust_remote_code", False))
    except (OSError, ValueError):
        return False  # whoever loads the model says more
    return hasattr(config, "vision_config")


def unique_job() -> str:
    """A name of this job on this node, for use in an actor.

    Ray numbers jobs anew in each cluster: the first of two clusters on one machine are both ``01000000``.
    """
    import ray

    context = ray.get_runtime_context()
    return f"{context.get_job_id()}-{context.get_node_id()[:16]}"


def own_weight_socket(vllm_rollout: ModuleType) -> None:
    """The socket over which vLLM gets the actor's weights has the Ray job's number in its name, so that two runs on one
    machine, each with a cluster of its own, take each other's weights: have the node's name in it, too.

    vLLM's side of it is in ``vllm_server.VideoServer``.
    """
    original = vllm_rollout.ServerAdapter.__init__

    @wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        import ray

        original(self, *args, **kwargs)
        self.zmq_handle = self.zmq_handle.replace(ray.get_runtime_context().get_job_id(), unique_job())

    vllm_rollout.ServerAdapter.__init__ = __init__


def failed_weights(vllm_rollout: ModuleType) -> None:
    """While vLLM loads weights the actor waits for its answers, without end if vLLM fails (it is out of memory, or the
    weights don't fit): have the run end with vLLM's error.

    Of several processes that share an engine the first one knows of the failure; the run's end ends the others.
    """
    adapter, sender = vllm_rollout.ServerAdapter, vllm_rollout.BucketedWeightSender
    execute = adapter._execute_method
    loading: dict[str, Any] = {}

    @wraps(execute)
    async def _execute_method(self: Any, method: str, non_block: bool = False, *args: Any, **kwargs: Any) -> Any:
        result = await execute(self, method, non_block, *args, **kwargs)
        if non_block and result is not None:
            loading[self.zmq_handle] = result.future()
        return result

    class Sender(sender):  # type: ignore[misc,valid-type]
        socket: Any

        def _init_socket(self) -> None:
            super()._init_socket()
            if (task := loading.pop(self.zmq_handle, None)) is not None:
                self.socket = WatchedSocket(self.socket, task)

    adapter._execute_method = _execute_method
    vllm_rollout.BucketedWeightSender = Sender  # type: ignore[attr-defined]


def poll_interval(replay_buffer: ModuleType) -> None:
    """The replay buffer looks for finished rollouts every 2 s and has no config key for it.

    ``AGENTIC_VIDEO_POLL_SECONDS`` sets the interval; a custom sampler class, verl's own seam, would lose
    ``algorithm.filter_groups``.
    """
    seconds = os.environ.get("AGENTIC_VIDEO_POLL_SECONDS")
    if not seconds:
        return
    original = replay_buffer.ReplayBuffer.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("poll_interval", float(seconds))
        original(self, *args, **kwargs)

    replay_buffer.ReplayBuffer.__init__ = __init__


def fused_head(fsdp_utils: ModuleType) -> None:
    """``model.use_fused_kernels`` with FSDP2 and an output head of its own (Qwen2.5-VL-7B, Qwen3-VL-8B).

    verl shards the head as a unit of its own, which is gathered when the head is called. Its fused forward never calls
    it: it multiplies by ``lm_head.weight``, which is still a shard (``models/transformers/qwen2_vl.py:517``), or
    gathers it in another precision than the backward pass expects (``qwen3_vl.py:370``). Both fail. Here the head stays
    with the root unit, which is gathered from the start of a forward pass to the end of its backward pass.
    """
    original = fsdp_utils._select_fsdp2_wrap_targets

    @wraps(original)
    def _select_fsdp2_wrap_targets(model: Any, *args: Any) -> list[Any]:
        modules: list[Any] = original(model, *args)
        if not getattr(model, "_verl_fused_kernels_backend", None):
            return modules
        head = model.get_output_embeddings()
        return [module for module in modules if module is not head]

    fsdp_utils._select_fsdp2_wrap_targets = _select_fsdp2_wrap_targets  # type: ignore[attr-defined]


def kept_weights(fsdp_utils: ModuleType) -> None:
    """Within a step of several updates verl's trainer with GPUs of its own for rollouts puts the weights aside, takes
    up those from the step's start, and then these again. Under FSDP2 it puts ``weights.cpu()`` aside: of weights that
    are offloaded (``param_offload``) the weights themselves, which are then overwritten, so that all updates of a step
    but the last are lost. Put copies aside.
    """
    original = fsdp_utils.fsdp2_sharded_save_to_cpu

    @wraps(original)
    def fsdp2_sharded_save_to_cpu(model: Any) -> Any:
        state, spec = original(model)
        live = {name: getattr(one, "_local_tensor", one).data_ptr() for name, one in model.named_parameters()}
        copied = {
            name: (saved.clone() if saved.data_ptr() == live[name] else saved, of_one)
            for name, (saved, of_one) in state.items()
        }
        return copied, spec

    fsdp_utils.fsdp2_sharded_save_to_cpu = fsdp2_sharded_save_to_cpu  # type: ignore[attr-defined]


def frozen_vision(engine_workers: ModuleType) -> None:
    """verl has a key ``actor.freeze_vision_tower`` and nothing that reads it: freeze the vision tower's weights.

    A frozen weight gets no gradient, so the optimizer passes it over.
    """
    original = engine_workers.ActorRolloutRefWorker.init_model

    @wraps(original)
    def init_model(self: Any) -> None:
        original(self)
        if getattr(self, "actor", None) is not None and self.config.actor.get("freeze_vision_tower", False):
            count = freeze_vision(self.actor.engine.module)
            print(f"vision tower frozen: {count} weights are left as they are", flush=True)

    engine_workers.ActorRolloutRefWorker.init_model = init_model


def freeze_vision(module: Any, merger: bool = True) -> int:
    """Take the vision tower out of training.

    Args:
        module: The model.
        merger: Whether what makes tokens of its patches is taken out, too.

    Returns:
        Number of frozen weights.

    Raises:
        ValueError: The model has no vision tower (no parameter under a module named ``visual``).
    """
    named = ((name.split("."), parameter) for name, parameter in module.named_parameters())
    # Qwen3-VL has several mergers: those of `deepstack_merger_list`, too.
    frozen = [
        parameter
        for path, parameter in named
        if "visual" in path and (merger or not any("merger" in part for part in path))
    ]
    if not frozen:
        raise ValueError("actor.freeze_vision_tower is set, but the model has no module named 'visual'")
    for parameter in frozen:
        parameter.requires_grad_(False)
    return sum(parameter.numel() for parameter in frozen)


def merged_lora(checkpoints: ModuleType) -> None:
    """verl writes a LoRA model's Hugging Face checkpoint under the wrapper's names, which nothing can load: merge the
    adapters into the weights that they belong to."""
    original = checkpoints.get_fsdp_full_state_dict

    @wraps(original)
    def get_fsdp_full_state_dict(model: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        state: dict[str, Any] = original(model, *args, **kwargs)
        adapter = getattr(model, "peft_config", {}).get("default")
        return state if adapter is None else merge_lora(state, adapter.lora_alpha / adapter.r)

    checkpoints.get_fsdp_full_state_dict = get_fsdp_full_state_dict  # type: ignore[attr-defined]


def merge_lora(state: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """The weights of the model below a LoRA wrapper, adapters added in, under the model's own names.

    Args:
        state: All weights of the wrapped model; empty on ranks that hold none.
        scale: What the product of an adapter's two matrices is multiplied by (alpha / rank).
    """
    merged = {}
    for name, weight in state.items():
        if ".lora_" in name:
            continue
        low = state.get(name.replace(".base_layer.weight", ".lora_A.default.weight"))
        high = state.get(name.replace(".base_layer.weight", ".lora_B.default.weight"))
        if name.endswith(".base_layer.weight") and low is not None and high is not None:
            # In float32: a product of bfloat16 matrices would lose what was learnt last.
            weight = (weight.float() + scale * (high.float() @ low.float())).to(weight.dtype)
        merged[name.removeprefix("base_model.model.").replace(".base_layer.", ".")] = weight
    return merged


def gaps_of_turns(trainer_base: ModuleType) -> None:
    """verl compares the probabilities of engine and actor over all tokens: also turn by turn, where it has both."""
    from agentic_video.training.logs.metrics import gap_by_turn

    original = trainer_base.calculate_debug_metrics

    @wraps(original)
    def calculate_debug_metrics(data: Any) -> dict[str, Any]:
        batch = data.batch
        mask = batch["response_mask"][:, -batch["responses"].size(1) :]
        gaps = gap_by_turn(batch["old_log_probs"], batch["rollout_log_probs"], mask)
        return {**original(data), **gaps}

    trainer_base.calculate_debug_metrics = calculate_debug_metrics  # type: ignore[attr-defined]


def means_without_padding(corrections: ModuleType) -> None:
    """verl fills a batch up with rows without a token, and counts them in its figures of whole sequences
    (``rollout_corr/*``): leave them out."""
    off_policy, weights, rejected = (
        getattr(corrections, name)
        for name in ("compute_offpolicy_metrics", "compute_is_metrics", "compute_rollout_rejection_mask")
    )

    def trained(mask: Any, *values: Any) -> list[Any]:
        rows = mask.sum(dim=-1) > 0
        return [None if value is None else value[rows] for value in (*values, mask)]

    @wraps(off_policy)
    def compute_offpolicy_metrics(old_log_prob: Any, rollout_log_prob: Any, response_mask: Any) -> Any:
        return off_policy(*trained(response_mask, old_log_prob, rollout_log_prob))

    @wraps(weights)
    def compute_is_metrics(
        rollout_is_weights: Any,
        raw_rollout_is_weights: Any,
        log_ratio_for_metrics: Any,
        response_mask: Any,
        **more: Any,
    ) -> Any:
        values = trained(response_mask, rollout_is_weights, raw_rollout_is_weights, log_ratio_for_metrics)
        names = "rollout_is_weights", "raw_rollout_is_weights", "log_ratio_for_metrics", "response_mask"
        return weights(**dict(zip(names, values, strict=True)), **more)

    @wraps(rejected)
    def compute_rollout_rejection_mask(log_ratio: Any, response_mask: Any, *args: Any, **more: Any) -> Any:
        mask, metrics = rejected(log_ratio, response_mask, *args, **more)
        rows = int((response_mask.sum(dim=-1) > 0).sum())
        if (name := "rollout_rs_seq_masked_fraction") in metrics and rows:
            metrics[name] *= len(response_mask) / rows
        return mask, metrics

    for function in (compute_offpolicy_metrics, compute_is_metrics, compute_rollout_rejection_mask):
        setattr(corrections, function.__name__, function)


class _TrainedKl:
    """A controller of the KL penalty that is told the mean over trained rows of a batch, and how many they are."""

    def __init__(self, controller: Any, rows: int, trained: int) -> None:
        self._controller, self._rows, self._trained = controller, rows, trained

    @property
    def value(self) -> float:
        return float(self._controller.value)

    def mean(self, over_rows: float) -> float:
        return over_rows * self._rows / max(1, self._trained)

    def update(self, current_kl: float, n_steps: int) -> None:
        self._controller.update(current_kl=self.mean(current_kl), n_steps=self._trained)


def kl_without_padding(trainer_base: ModuleType) -> None:
    """``algorithm.use_kl_in_reward``: verl's mean of the KL over a batch counts the rows that fill it up, in the log
    and for an adaptive coefficient."""
    original = trainer_base.apply_kl_penalty

    @wraps(original)
    def apply_kl_penalty(data: Any, kl_ctrl: Any, *args: Any, **more: Any) -> Any:
        mask = data.batch["response_mask"]
        controller = _TrainedKl(kl_ctrl, len(mask), int((mask.sum(dim=-1) > 0).sum()))
        data, metrics = original(data, controller, *args, **more)
        return data, {**metrics, (name := "actor/reward_kl_penalty"): controller.mean(metrics[name])}

    trainer_base.apply_kl_penalty = apply_kl_penalty  # type: ignore[attr-defined]


WANDB_ID = "wandb_run_id"
"""File of a run's folder."""


def same_wandb_run(tracking: ModuleType) -> None:
    """A run that is resumed would be another one to Weights & Biases: give it the id that it had, which is kept in its
    folder. ``WANDB_RUN_ID`` of the environment comes first."""
    original = tracking.Tracking.__init__

    @wraps(original)
    def __init__(
        self: Any, project_name: str, experiment_name: str, default_backend: Any = "console", config: Any = None
    ) -> None:
        backends = [default_backend] if isinstance(default_backend, str) else default_backend
        trainer = (config or {}).get("trainer") or {}
        folder = trainer.get("default_local_dir")
        if folder and {"wandb", "tracking"} & set(backends) and not os.environ.get("WANDB_RUN_ID"):
            os.environ["WANDB_RUN_ID"] = wandb_id(trainer)
            os.environ.setdefault("WANDB_RESUME", "allow")
        original(self, project_name, experiment_name, default_backend, config)

    tracking.Tracking.__init__ = __init__


def wandb_id(trainer: Mapping[str, Any]) -> str:
    """The id of a run at Weights & Biases: the one in its folder where it resumes from there, else a new one.

    Args:
        trainer: The block of its config.
    """
    folder = Path(trainer["default_local_dir"])
    file = folder / WANDB_ID
    resumed, start = trainer.get("resume_mode", "auto"), folder
    if resumed == "resume_path":
        start = Path(trainer["resume_from_path"]).parent
    resumes = resumed != "disable" and start.resolve() == folder.resolve() and newest_whole(folder)[0] is not None
    if resumes and file.is_file() and (known := file.read_text(encoding="utf-8").strip()):
        return known
    new = uuid.uuid4().hex[:16]
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(new, encoding="utf-8")
    return new
