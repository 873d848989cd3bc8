"""Batches of a validation: how large they are, and each question asked twice, as the recipe samples and greedily."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from agentic_video.report.held_out import GREEDY
from agentic_video.training.logs.metrics import greedy_name

ROLLOUTS = "__rollout_n__"
"""In a row of a validation: how many episodes verl plays on it."""


def validation_batch(config: DictConfig) -> int:
    """Questions of a validation that fill all places of the engines, as verl waits for the slowest of each batch.

    All questions at a time, which is verl's way, would have each of them hold its first frames from the start.
    """
    rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
    gpus = int(trainer.nnodes) * int(trainer.n_gpus_per_node)
    alone = [OmegaConf.select(rollout, key) or 0 for key in ("nnodes", "n_gpus_per_node")]
    engines = max(1, (math.prod(map(int, alone)) or gpus) // int(rollout.tensor_model_parallel_size))
    return max(1, engines * int(rollout.max_num_seqs) // int(rollout.val_kwargs.n))


class WithGreedy:
    """Batches of a validation with each of their questions a second time, to be answered greedily, once.

    verl counts the two apart: the second carries another data source, see :func:`greedy_name`.

    Args:
        loader: verl's batches of rows: arrays and tensors by name.
        rollouts: Episodes that verl plays on each question (``val_kwargs.n``).
    """

    def __init__(self, loader: Iterable[Mapping[str, Any]], rollouts: int):
        self._loader, self._rollouts = loader, rollouts

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # verl's loader has one

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._loader:
            size = len(batch["raw_prompt"])
            twice = {key: _twice(values) for key, values in batch.items()}
            sources = [str(source) for source in batch["data_source"]]
            yield {
                **twice,
                "data_source": np.array([*sources, *map(greedy_name, sources)], dtype=object),
                GREEDY: np.array([False] * size + [True] * size, dtype=object),
                ROLLOUTS: np.array([self._rollouts] * size + [1] * size, dtype=object),
            }


def _twice(values: Any) -> Any:
    return torch.cat([values, values]) if isinstance(values, torch.Tensor) else np.concatenate([values, values])
