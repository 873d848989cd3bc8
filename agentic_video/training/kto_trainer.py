"""KTO on verl's SFT trainer and engine: FSDP2, LoRA, sequence parallelism, checkpoints and logs are verl's.

Started on every device by torchrun: ``-m agentic_video.training.kto_trainer --config-dir recipes/<system>/config
--config-name kto``. Each step computes log-probabilities of the batch's trajectories and mismatched pairs under the
frozen reference, and of the pairs under the policy; then the engine takes the loss as for SFT. The reference is the
checkpoint that training started from, also after a resume: with a fresh LoRA adapter the same weights with the adapter
off, otherwise a second engine, whose weights wait in the host's memory.
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import hydra
import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import TrainingWorker, TrainingWorkerConfig

from agentic_video.config.typed import dataclass_from
from agentic_video.training.sft import VideoSFTTrainer, train
from agentic_video.training.sft_kto.datasets import MISMATCHED, KtoCollator
from agentic_video.training.sft_kto.kto import KtoLoss, balanced_weights, reference_point, sequence_log_probs


def batch_loss(
    loss: KtoLoss, model_output: Mapping[str, Any], data: TensorDict, dp_group: Any = None
) -> tuple[torch.Tensor, dict[str, float]]:
    """verl's loss function: a micro-batch's share of the mean over all ranks' batch, and sums for :func:`summary`."""
    policy = _summed(model_output["log_probs"], data["loss_mask"])
    desirable = data["desirable"]
    losses = loss.losses(policy, data["reference"], desirable, data["kl"])
    rewards = loss.rewards(policy, data["reference"])
    sums = {"kl": float(data["kl"].sum()), "count": float(len(losses))}
    for kind, chosen in (("desirable", desirable), ("undesirable", ~desirable)):
        sums[f"{kind}/count"] = float(chosen.sum())
        sums[f"{kind}/loss"] = float(losses.detach()[chosen].sum())
        sums[f"{kind}/reward"] = float(rewards[chosen].sum())
        sums[f"{kind}/log_prob"] = float(policy.detach()[chosen].sum())
    share = losses.sum() * data["dp_size"] / data["global_batch_size"]
    return share, {f"kto/{name}": value for name, value in sums.items()}


def summary(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """A step's metrics, with means of the ``kto/`` sums over all ranks and micro-batches, of the kinds that it has."""
    sums = {name.removeprefix("kto/"): _total(value) for name, value in metrics.items() if name.startswith("kto/")}
    result = {name: value for name, value in metrics.items() if not name.startswith("kto/")}
    if not sums:
        return result
    result["kto/kl"] = sums["kl"] / sums["count"]
    result["kto/desirable_share"] = sums["desirable/count"] / sums["count"]
    for kind in ("desirable", "undesirable"):
        if count := sums[f"{kind}/count"]:
            for name in ("loss", "reward", "log_prob"):
                result[f"kto/{kind}/{name}"] = sums[f"{kind}/{name}"] / count
    if sums["desirable/count"] and sums["undesirable/count"]:
        result["kto/margin"] = result["kto/desirable/reward"] - result["kto/undesirable/reward"]
    return result


def _total(value: Any) -> float:
    return sum(map(_total, value)) if isinstance(value, Iterable) else float(value)


def _summed(log_probs: Any, mask: torch.Tensor) -> torch.Tensor:
    """:func:`sequence_log_probs` of nested tensors."""
    values = log_probs.values()
    return sequence_log_probs(values, mask.values().to(values.device), log_probs.offsets().diff())


class KtoWorker(TrainingWorker):
    """verl's worker with a reference: a frozen model, or, for None, the policy with its LoRA adapter off."""

    def __init__(self, config: TrainingWorkerConfig, reference: TrainingWorker | None):
        super().__init__(config)
        self._reference = reference

    def reset(self) -> None:
        """Load the policy and the reference."""
        super().reset()
        if self._reference is not None:
            self._reference.reset()

    def train_batch(self, data: TensorDict) -> TensorDict | None:
        """Train on a batch; see verl's."""
        return _summarised(super().train_batch(self.add_reference(data)))

    def infer_batch(self, data: TensorDict) -> TensorDict | None:
        """Compute the loss without an update, for validation; see verl's."""
        return _summarised(super().infer_batch(self.add_reference(data)))

    def add_reference(self, data: TensorDict) -> TensorDict:
        """Replace a batch's mismatched pairs by ``reference`` and ``kl``.

        These are each trajectory's log-probability under the reference, and the reference point, the same on all ranks.
        """
        fields = [name for name in data.keys() if name.startswith(MISMATCHED)]  # noqa: SIM118 (a TensorDict)
        pairs = data.exclude("desirable", *[name.removeprefix(MISMATCHED) for name in fields])
        for name in fields:
            pairs.rename_key_(name, name.removeprefix(MISMATCHED))
        matched = data.exclude(*fields)
        policy = _log_probs(self, pairs)
        kl = reference_point(policy, self._reference_log_probs(pairs), self.engine.get_data_parallel_group())
        reference = self._reference_log_probs(matched)
        matched["reference"] = reference.cpu()
        matched["kl"] = kl.cpu().expand(len(reference)).clone()
        return matched

    def _reference_log_probs(self, data: TensorDict) -> torch.Tensor:
        if self._reference is not None:
            return _log_probs(self._reference, data)
        return _log_probs(self, data, adapter=False)


def _log_probs(worker: TrainingWorker, data: TensorDict, adapter: bool = True) -> torch.Tensor:
    """Log-probability of each sequence's generated tokens, shape (n,), without gradient."""
    engine = worker.engine
    # a copy: the engine writes into a batch
    data = data.copy()
    tu.assign_non_tensor(data, use_fused_kernels=worker.engine_config.use_fused_kernels)
    with engine.eval_mode(), nullcontext() if adapter else engine.disable_adapter():
        output = engine.infer_batch(data)
    return _summed(output["model_output"]["log_probs"], data["loss_mask"])


def _summarised(output: TensorDict | None) -> TensorDict | None:
    if output is None:
        return None
    return tu.get_tensordict(tensor_dict={}, non_tensor_dict={"metrics": summary(tu.get(output, "metrics"))})


class KtoTrainer(VideoSFTTrainer):
    """verl's SFT trainer with KTO's loss."""

    def _build_engine(self) -> None:
        self.loss = kto_loss(self.config.kto, self.train_dataset.labels)
        if self.rank == 0:
            kinds = self.train_dataset.labels
            print(
                f"KTO: {sum(kinds)} desirable, {len(kinds) - sum(kinds)} undesirable, {asdict(self.loss)}", flush=True
            )
        config = TrainingWorkerConfig(
            model_type="language_model",
            model_config=self.model_config,
            engine_config=self.engine_config,
            optimizer_config=self.optimizer_config,
            checkpoint_config=self.checkpoint_config,
            profiler_config=self.profiler_config,
        )
        reference = None
        # A given adapter is part of the model that training starts with.
        if not self.model_config.lora_rank or self.model_config.lora_adapter_path:
            copies = deepcopy((self.model_config, self.engine_config, self.optimizer_config))
            model, engine, optimizer = copies
            engine.forward_only = True
            frozen = replace(config, model_config=model, engine_config=engine, optimizer_config=optimizer)
            reference = TrainingWorker(frozen)
        self.training_client = KtoWorker(config, reference)
        self.training_client.set_loss_fn(partial(batch_loss, self.loss))
        self.engine = self.training_client.engine

    def _build_dataloader(self) -> None:
        check_batch_size(self.config.data.train_batch_size, self.engine.get_data_parallel_size())
        super()._build_dataloader()
        processor = self.model_config.processor
        collator = KtoCollator(processor)
        for loader in (self.train_dataloader, self.val_dataloader):
            if loader is not None:
                loader.collate_fn = collator


def check_batch_size(size: int, ranks: int) -> None:
    """Raise ValueError if ranks don't get two trajectories or more each, evenly: each is paired with another."""
    if size % ranks or size // ranks < 2:
        raise ValueError(
            f"data.train_batch_size={size} on {ranks} data-parallel ranks: it must be a multiple of {ranks}, at "
            f"least {2 * ranks}, since the reference point pairs a question with another trajectory of its rank"
        )


@dataclass(frozen=True)
class KtoBlock(KtoLoss):
    """A config's ``kto`` block; ``balanced`` raises the weight of the rarer kind of the training data."""

    balanced: bool = False


def kto_loss(block: Mapping[str, Any], labels: list[bool]) -> KtoLoss:
    """The loss of a config's ``kto`` block for the training labels."""
    read = dataclass_from(KtoBlock, block, "kto")
    weights = balanced_weights(sum(labels), len(labels) - sum(labels)) if read.balanced else (1.0, 1.0)
    return KtoLoss(read.beta, read.desirable_weight * weights[0], read.undesirable_weight * weights[1])


@hydra.main(config_path=None, config_name=None, version_base=None)
def main(config: DictConfig) -> None:
    """Train as the config says."""
    train(config, KtoTrainer)


if __name__ == "__main__":
    main()
