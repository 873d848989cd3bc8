"""What TRL's KTO trainer makes of a few small batches: writes ``trl_kto.json``, which the tests compare with.

TRL can't be in the tests' environment: verl 0.9.1 finds it there, and imports a class from it that TRL 1 hasn't got.
Put it into a folder of its own, and run this from the repository's root:

    uv pip install --target /tmp/trl --no-deps trl==1.16.0
    PYTHONPATH=/tmp/trl python -m tests.training.trl_kto
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from agentic_video.training.sft_kto.kto import KtoLoss, mismatch

EXPECTED = Path(__file__).with_suffix(".json")
VOCABULARY = 13
BETA, DESIRABLE_WEIGHT, UNDESIRABLE_WEIGHT = 0.1, 1.25, 1.7
LABELS = {"mixed": (1, 0, 1, 0, 1), "all desirable": (1, 1, 1, 1, 1), "all undesirable": (0, 0, 0, 0, 0)}
SEEDS = (1, 2, 3)


class TinyModel(torch.nn.Module):
    """A model with the interface that TRL's loss calls: log-probabilities of the labels, in each position but one."""

    is_gradient_checkpointing = False

    def __init__(self, seed: int):
        super().__init__()
        row, column = torch.arange(float(VOCABULARY))[:, None], torch.arange(float(VOCABULARY))
        self.weights = torch.nn.Parameter(torch.sin(seed + 7.3 * row + 1.7 * column + 0.9 * row * column))

    def next_log_probs(self, ids: torch.Tensor) -> torch.Tensor:
        """Log-probability of each token but the first; it depends on all the tokens before it."""
        logits = self.weights[ids].cumsum(-2)[..., :-1, :]
        return logits.log_softmax(-1).gather(-1, ids[..., 1:, None]).squeeze(-1)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor, **kwargs: Any) -> SimpleNamespace:
        log_probs = self.next_log_probs(input_ids) * (labels[:, 1:] != -100)
        return SimpleNamespace(log_probs=log_probs, entropy=log_probs, mean_logits=log_probs, loss=log_probs.sum())


@dataclass(frozen=True)
class Batch:
    """Prompts, what was said to them, and whether it is desirable."""

    prompts: tuple[torch.Tensor, ...]
    said: tuple[torch.Tensor, ...]
    desirable: torch.Tensor
    partners: tuple[int, ...]

    @classmethod
    def make(cls, seed: int, labels: Sequence[int]) -> "Batch":
        """Sequences of 2 to 9 tokens."""

        def ids(number: int, length: int) -> torch.Tensor:
            return (torch.arange(length) * 5 + number * 3 + seed * 7) ** 2 % VOCABULARY

        numbers = range(len(labels))
        return cls(
            tuple(ids(number, 1 + (number + seed) % 4) for number in numbers),
            tuple(ids(number + 20, 1 + (2 * number + seed) % 5) for number in numbers),
            torch.tensor(labels, dtype=torch.bool),
            tuple(mismatch([str(number) for number in numbers])),
        )

    def sequences(self, mismatched: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        said = [self.said[partner] for partner in self.partners] if mismatched else list(self.said)
        pairs = list(zip(self.prompts, said, strict=True))
        masks = [torch.cat([torch.zeros(len(item)), torch.ones(len(two))]) for item, two in pairs]
        return [torch.cat(pair) for pair in pairs], masks


def models(seed: int) -> tuple[TinyModel, TinyModel]:
    return TinyModel(seed), TinyModel(seed + 100)


def config() -> KtoLoss:
    return KtoLoss(BETA, DESIRABLE_WEIGHT, UNDESIRABLE_WEIGHT)


def trl_loss(policy: TinyModel, reference: TinyModel, batch: Batch) -> tuple[torch.Tensor, float]:
    """Loss and reference point of a batch by TRL's own code, without the trainer around it."""
    from trl import KTOTrainer

    def padded(rows: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    inputs = {"label": batch.desirable}
    for prefix, mismatched in (("", False), ("KL_", True)):
        ids, masks = batch.sequences(mismatched)
        inputs[f"{prefix}input_ids"], inputs[f"{prefix}completion_mask"] = padded(ids), padded(masks)
        inputs[f"{prefix}attention_mask"] = padded([torch.ones(len(row)) for row in ids])
    trainer = SimpleNamespace(
        model=policy,
        ref_model=reference,
        accelerator=SimpleNamespace(device=torch.device("cpu"), gather_for_metrics=lambda value: value),
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        aux_loss_enabled=False,
        calculate_KL=True,
        precompute_ref_logps=False,
        loss_type="kto",
        beta=BETA,
        desirable_weight=DESIRABLE_WEIGHT,
        undesirable_weight=UNDESIRABLE_WEIGHT,
        _tp_size=1,
        _total_train_tokens=0,
        _metrics={"train": defaultdict(list)},
    )
    trainer._compute_kl_logps = lambda model, known: KTOTrainer._compute_kl_logps(trainer, model, known)
    loss = KTOTrainer._compute_loss(trainer, policy, inputs, return_outputs=False)
    return loss, trainer._metrics["train"]["kl"][0]


def main() -> None:
    import trl

    cases = []
    for seed in SEEDS:
        for name, labels in LABELS.items():
            policy, reference = models(seed)
            loss, kl = trl_loss(policy, reference, Batch.make(seed, labels))
            loss.backward()
            assert policy.weights.grad is not None
            cases.append(
                {"seed": seed, "labels": name, "loss": loss.item(), "kl": kl, "gradient": policy.weights.grad.tolist()}
            )
            print(f"seed {seed}, {name}: loss {loss.item():.6f}, KL {kl:.6f}")
    EXPECTED.write_text(json.dumps({"trl": trl.__version__, "cases": cases}), encoding="utf-8")


if __name__ == "__main__":
    main()
