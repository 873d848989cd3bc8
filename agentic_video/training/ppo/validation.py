"""Batches of a validation: their size, and each question twice, sampled as in the recipe and greedily."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from agentic_video.report.held_out import GREEDY
from agentic_video.training.logs.metrics import greedy_name

ROLLOUTS = "__rollout_n__"
"""In a row of a validation: verl's number of episodes on it."""


def validation_batch(config: DictConfig) -> int:
    """Questions that fill all places of the engines; verl's default, all at a time, would hold all first frames."""
    rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
    gpus = int(trainer.nnodes) * int(trainer.n_gpus_per_node)
    alone = [OmegaConf.select(rollout, key) or 0 for key in ("nnodes", "n_gpus_per_node")]
    engines = max(1, (math.prod(map(int, alone)) or gpus) // int(rollout.tensor_model_parallel_size))
    return max(1, engines * int(rollout.max_num_seqs) // int(rollout.val_kwargs.n))


class WithGreedy:
    """A validation's batches with each question a second time, under another data source, answered greedily once."""

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
