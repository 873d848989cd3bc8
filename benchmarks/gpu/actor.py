"""verl's actor on one device: its own worker class, engine, loss and optimizer, without Ray.

The config is a recipe's ``cluster.yaml``, composed as a run composes it, with the few keys that a setting names.
"""

import math
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentic_video.rollout.tokens import ChatFormat
from benchmarks.gpu.machine import REPOSITORY, has_flash_attention
from benchmarks.gpu.sequences import Episode

CPU_KEYS = (
    "trainer.device=cpu",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
)
"""Overrides of the cluster's config where there is no GPU."""


@dataclass(frozen=True)
class ActorSetting:
    """Settings of an actor."""

    model: Path  # folder of its checkpoint
    device: str  # ``cuda`` or ``cpu``
    tokens: int  # most tokens of a micro-batch
    # what it computes in: ``bfloat16`` (with float32 master weights, as in the recipes) or ``float32``
    dtype: str = "bfloat16"
    fused: bool = False  # verl's fused kernels (``actor_rollout_ref.model.use_fused_kernels``)
    # of adapters in the language model; 0 trains all weights. With adapters the base weights are bfloat16
    lora_rank: int = 0
    checkpointing: bool = True  # gradient checkpointing, as in the recipes
    entropy: float = 1e-3  # the weight of the entropy in the loss; above 0 the entropy's gradient is computed too
    learning_rate: float = 1e-6  # of AdamW
    attention: str = ""  # ``flash_attention_2`` (which also packs sequences) or ``sdpa``; empty: what is installed
    recipe: str = "videozoomer"  # whose ``cluster.yaml`` it is

    @property
    def attends_with(self) -> str:
        """The attention in use: flash attention computes neither float32 nor on a CPU."""
        if self.attention:
            return self.attention
        able = self.device == "cuda" and self.dtype != "float32" and has_flash_attention()
        return "flash_attention_2" if able else "sdpa"

    def overrides(self) -> list[str]:
        """Hydra overrides of the recipe's cluster config."""
        from agentic_video.config.overrides import quoted

        actor = "actor_rollout_ref.actor"
        short = {"bfloat16": "bf16", "float32": "fp32"}[self.dtype]
        packed = self.attends_with == "flash_attention_2"
        keys = [
            f"actor_rollout_ref.model.path={quoted(self.model)}",
            f"actor_rollout_ref.model.use_fused_kernels={self.fused}",
            f"actor_rollout_ref.model.use_remove_padding={packed}",
            f"actor_rollout_ref.model.enable_gradient_checkpointing={self.checkpointing}",
            f"+actor_rollout_ref.model.override_config.attn_implementation={self.attends_with}",
            f"{actor}.ppo_max_token_len_per_gpu={self.tokens}",
            f"actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu={self.tokens}",
            f"{actor}.entropy_coeff={self.entropy}",
            f"{actor}.optim.lr={self.learning_rate}",
            f"+{actor}.fsdp_config.mixed_precision={{param_dtype:{short},reduce_dtype:fp32,buffer_dtype:fp32}}",
        ]
        if self.lora_rank:
            keys += [
                f"actor_rollout_ref.model.lora_rank={self.lora_rank}",
                f"actor_rollout_ref.model.lora_alpha={2 * self.lora_rank}",
                "actor_rollout_ref.model.exclude_modules='.*visual.*'",
                f"{actor}.fsdp_config.model_dtype={short}",
            ]
        return keys + (list(CPU_KEYS) if self.device == "cpu" else [])

    def config(self) -> Any:
        """The whole block ``actor_rollout_ref``, resolved."""
        from omegaconf import OmegaConf

        from agentic_video.config.compose import compose_recipe

        config = compose_recipe(REPOSITORY / "recipes" / self.recipe, "cluster", self.overrides())
        return OmegaConf.create(OmegaConf.to_container(config.actor_rollout_ref, resolve=True))


class Actor:
    """verl's actor in this process."""

    def __init__(self, setting: ActorSetting):
        join_alone()
        import torch

        from agentic_video.training.ppo.workers import VideoActorWorker

        self.setting = setting
        self._torch = torch
        worker: Any = VideoActorWorker(config=setting.config(), role="actor")
        self.worker = worker
        self.worker.init_model()
        model: Any = self.worker.actor.model_config
        self.processor, self.chat_format = model.processor, ChatFormat.of(model.processor)

    def batch(self, episodes: Sequence[Episode], shown: Sequence[Sequence[Any]] | None = None) -> Any:
        """Make a batch with the fields of verl's agent-loop workers (``agent_loop_tq.py:183``)."""
        import torch
        from verl.utils import tensordict_utils as tu

        from agentic_video.training.inputs.model_inputs import model_inputs, reference_inputs
        from agentic_video.training.inputs.references import SequenceImages
        from agentic_video.types.frame import Frame, ImageRef
        from agentic_video.video.store_config import StoreConfig

        rows: dict[str, list[Any]] = {"position_ids": [], "multi_modal_inputs": []}
        if shown is None:
            shown = [[Frame(at, float(at), image) for at, image in enumerate(episode.images)] for episode in episodes]
        for episode, visuals in zip(episodes, shown, strict=True):
            ids = torch.tensor(episode.ids, dtype=torch.int64)
            if any(isinstance(visual, ImageRef) for visual in visuals):  # they stay in a frame store
                images = SequenceImages(tuple(visuals), StoreConfig())
                positions, inputs = reference_inputs(self.processor, ids, images)
            else:
                positions, inputs = model_inputs(self.processor, ids, visuals)
            rows["position_ids"].append(positions)
            rows["multi_modal_inputs"].append(inputs)
        fields = {
            "prompts": [episode.prompt for episode in episodes],
            "responses": [episode.response for episode in episodes],
            "response_mask": [episode.mask for episode in episodes],
            "loss_mask": [episode.mask for episode in episodes],
            "input_ids": [episode.ids for episode in episodes],
        }
        nested = {
            name: torch.nested.as_nested_tensor(
                [torch.tensor(sequence, dtype=torch.int64) for sequence in values], layout=torch.jagged
            )
            for name, values in fields.items()
        }
        nested["position_ids"] = tu.nested_tensor_from_tensor_list(rows["position_ids"], ragged_idx=2)
        return tu.get_tensordict({**nested, "multi_modal_inputs": rows["multi_modal_inputs"]})

    def log_probs(self, batch: Any) -> list[Any]:
        """Score each response as ``trainer_base.py:1658`` does: one tensor of shape (response,) a sequence."""
        from verl.utils import tensordict_utils as tu
        from verl.workers.utils.padding import response_from_nested

        data = batch.copy()
        tu.assign_non_tensor(data, calculate_entropy=True, compute_loss=False, temperature=1.0)
        output = self.worker.compute_log_prob(data)
        return list(response_from_nested(output["log_probs"].cpu(), batch["response_mask"]).unbind())

    def with_targets(self, batch: Any, old: Sequence[Any], advantages: Sequence[float]) -> Any:
        """Add what the loss needs: the policy before the update, the same as reference, and advantages."""
        import torch

        data = batch.copy()
        old_nested = torch.nested.as_nested_tensor([values.float() for values in old], layout=torch.jagged)
        data["old_log_probs"] = old_nested
        data["ref_log_prob"] = old_nested.clone()
        data["advantages"] = torch.nested.as_nested_tensor(
            [torch.full((len(values),), value) for values, value in zip(old, advantages, strict=True)],
            layout=torch.jagged,
        )
        return data

    def update(self, data: Any) -> dict[str, float]:
        """Take one optimizer step on a batch, as ``trainer_base.py:1827`` does, and return its metrics."""
        from verl.utils import tensordict_utils as tu

        data = data.copy()
        count = len(data) * self._torch.distributed.get_world_size()  # each rank has its own part
        tu.assign_non_tensor(
            data,
            calculate_entropy=self.setting.entropy > 0,
            global_batch_size=count,
            mini_batch_size=count,
            epochs=1,
            seed=0,
            dataloader_kwargs={"shuffle": False},
            temperature=1.0,
        )
        metrics = tu.get(self.worker.update_actor(data), "metrics")
        return {name: number for name, value in metrics.items() if (number := _number(value)) is not None}

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.setting.device == "cuda":
            self._torch.cuda.synchronize()

    def memory(self) -> dict[str, int]:
        """Bytes of the device that are taken, and the most since the last :meth:`forget_peak`; empty on a CPU."""
        if self.setting.device != "cuda":
            return {}
        cuda = self._torch.cuda
        return {
            "allocated": cuda.memory_allocated(),
            "peak_allocated": cuda.max_memory_allocated(),
            "peak_reserved": cuda.max_memory_reserved(),
        }

    def forget_peak(self) -> None:
        """Begin a new measurement of the peak."""
        if self.setting.device == "cuda":
            self._torch.cuda.empty_cache()
            self._torch.cuda.reset_peak_memory_stats()

    def timed_update(self, data: Any) -> tuple[float, dict[str, float]]:
        """:meth:`update` and its seconds."""
        self.synchronize()
        started = time.perf_counter()
        metrics = self.update(data)
        self.synchronize()
        return time.perf_counter() - started, metrics

    def close(self) -> None:
        """Give back what the process group holds."""
        self._torch.distributed.destroy_process_group()


def join_alone() -> None:
    """Environment of a job of one process, as Ray or torchrun would set it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    values = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update({**values, "MASTER_PORT": port})


def _number(value: Any) -> float | None:
    """A metric as a number: the mean of a list; None for what is none."""
    if hasattr(value, "aggregate"):
        value = value.aggregate()
    if isinstance(value, list | tuple):
        numbers = [number for number in map(_number, value) if number is not None]
        return math.fsum(numbers) / len(numbers) if numbers else None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
