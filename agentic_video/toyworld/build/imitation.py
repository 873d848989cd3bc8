"""Demonstrations (token ids with frames and a loss mask) and the training loop on them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from agentic_video.families.registry import family_of
from agentic_video.families.tiny import Images, decoded, pixels_of, seconds_of
from agentic_video.toyworld.build.shares import SHARES, shared_out
from agentic_video.types.message import Visual


@dataclass(frozen=True)
class Demonstration:
    """An episode to imitate.

    Attributes:
        ids: Token ids of the whole episode.
        trained: Loss mask, bool, as long as ``ids``.
        images: All images and clips in order (:data:`agentic_video.families.tiny.Images`).
        places: Positions, shape (axes, len(ids)).
    """

    ids: tuple[int, ...]
    trained: npt.NDArray[np.bool_]
    images: tuple[npt.NDArray[np.uint8], ...]
    places: torch.Tensor

    @classmethod
    def make(
        cls, model: Any, ids: Sequence[int], trained: npt.NDArray[np.bool_], shown: Sequence[Visual]
    ) -> "Demonstration":
        """Make one with the model's positions."""
        images = pixels_of(shown)
        places = family_of(model).tiny.positions(model, ids, images, seconds_of(shown))
        return cls(tuple(ids), trained, tuple(images), places)


@dataclass(frozen=True)
class DemonstrationSet:
    """Demonstrations of one kind, of which each step draws ``batch``."""

    pool: Sequence[Demonstration]
    batch: int


def batch_loss(model: Any, batch: Sequence[Demonstration], pad_id: int, total: int | None = None) -> torch.Tensor:
    """Cross-entropy of the trained ids, right-padded: their sum divided by ``total``, or their mean."""
    length = max(len(demonstration.ids) for demonstration in batch)
    ids = torch.full((len(batch), length), pad_id)
    trained = torch.zeros((len(batch), length), dtype=torch.bool)
    places = torch.zeros((len(batch[0].places), len(batch), length), dtype=torch.long)
    for row, demonstration in enumerate(batch):
        end = len(demonstration.ids)
        ids[row, :end] = torch.tensor(demonstration.ids)
        trained[row, :end] = torch.from_numpy(demonstration.trained)
        places[:, row, :end] = demonstration.places
    images = [image for demonstration in batch for image in demonstration.images]
    logits = logits_at(model, ids, images, places, trained.roll(-1, 1))
    return F.cross_entropy(logits, ids[trained], reduction="sum") / (total or int(trained.sum()))


def logits_at(
    model: Any, ids: torch.Tensor, images: Images, places: torch.Tensor, wanted: torch.Tensor
) -> torch.Tensor:
    """Next-token logits at chosen places of right-padded sequences.

    Args:
        ids: Shape (batch, length).
        places: Positions, shape (axes, batch, length).
        wanted: Places of the logits, bool, shape (batch, length).

    Returns:
        Shape (number of places, vocabulary), in row-major order.
    """
    inputs = family_of(model).tiny.embed(model, ids, images)
    output = decoded(model, inputs, places, attention_mask=None, use_cache=False)
    logits: torch.Tensor = model.lm_head(output.last_hidden_state[wanted])
    return logits


def train(
    model: Any,
    sets: Sequence[DemonstrationSet],
    pad_id: int,
    *,
    phase: str,
    steps: int,
    learning_rate: float,
    seed: int,
    final_rate: float = 0.1,
) -> None:
    """Train in place with AdamW: 50 steps of warm-up, then a cosine.

    Args:
        final_rate: Final rate as a share of the peak.
    """
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.99), weight_decay=0.0)
    model.train()
    started = time.monotonic()
    taking_part = [pooled for pooled in sets if pooled.batch]
    losses: list[npt.NDArray[np.float64]] = []

    def learn_from(drawn: Sequence[Sequence[int]], share: int) -> npt.NDArray[np.float64]:
        """Add the gradient of a share of the demonstrations that were drawn from each set."""
        found = []
        for pooled, places in zip(taking_part, drawn, strict=True):
            total = sum(int(pooled.pool[place].trained.sum()) for place in places)
            mine = [pooled.pool[place] for place in places[share::SHARES]]
            if any(demonstration.trained.any() for demonstration in mine):
                loss = batch_loss(model, mine, pad_id, total)
                loss.backward()
                found.append(loss.item())
            else:
                found.append(0.0)
        return np.array(found)

    with shared_out(model, learn_from) as gradients:
        for step in range(1, steps + 1):
            drawn = [
                rng.choice(len(part.pool), min(part.batch, len(part.pool)), replace=False).tolist()
                for part in taking_part
            ]
            cosine = (1 + np.cos(np.pi * step / steps)) / 2
            rate = min(1.0, step / 50) * (final_rate + (1 - final_rate) * float(cosine))
            for group in optimizer.param_groups:
                group["lr"] = rate * learning_rate
            losses.append(gradients(drawn))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 50 == 0 or step == steps:
                recent = " ".join(f"{loss:.4f}" for loss in np.mean(losses[-25:], 0))
                print(
                    f"[cold start] {phase}: step {step} of {steps}, loss {recent}, {time.monotonic() - started:.0f} s",
                    flush=True,
                )
    model.eval()
