"""The loss of KTO (Model Alignment as Prospect Theoretic Optimization, section 4.1, equations 7 and 8), without verl.

A trajectory's implied reward, the log-ratio of its probability under the policy and under the frozen reference, is
compared with an estimate of the KL divergence between the two from pairs of a question and another's response.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.distributed
from annotated_types import Ge, Gt


@dataclass(frozen=True)
class KtoLoss:
    """The constants of the loss: ``beta`` holds the policy to the reference; weights of both kinds' losses."""

    beta: Annotated[float, Gt(0)] = 0.1
    desirable_weight: Annotated[float, Ge(0)] = 1.0
    undesirable_weight: Annotated[float, Ge(0)] = 1.0

    def losses(
        self, policy: torch.Tensor, reference: torch.Tensor, desirable: torch.Tensor, kl: torch.Tensor
    ) -> torch.Tensor:
        """The weighted loss of each trajectory, shape (n,), between 0 and the weights; a gradient for ``policy`` only.

        ``policy`` and ``reference`` are log-probabilities of the trajectories; ``kl`` is the :func:`reference_point`.
        """
        desirable = desirable.bool()
        advantage = self.beta * (policy - reference.detach() - kl.detach())
        weight = torch.where(desirable, self.desirable_weight, self.undesirable_weight)
        # 1 - sigmoid(x) is sigmoid(-x)
        return weight * torch.sigmoid(torch.where(desirable, -advantage, advantage))

    def rewards(self, policy: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """The implied reward of each trajectory, without gradient."""
        return self.beta * (policy - reference).detach()


def reference_point(
    policy: torch.Tensor, reference: torch.Tensor, group: torch.distributed.ProcessGroup | None = None
) -> torch.Tensor:
    """The estimate of the KL divergence that rewards are compared with: never below 0, without gradient.

    Averaged over the log-probabilities of mismatched pairs' responses, shape (n,), of all processes of a group.
    """
    ratios = (policy - reference).detach().float()
    total = torch.stack([ratios.sum(), ratios.new_tensor(float(ratios.numel()))])
    if group is not None:
        torch.distributed.all_reduce(total, op=torch.distributed.ReduceOp.SUM, group=group)
    if total[1] == 0:
        raise ValueError("the reference point needs at least one mismatched pair")
    return (total[0] / total[1]).clamp(min=0)


def sequence_log_probs(log_probs: torch.Tensor, mask: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Log-probability of the generated tokens of each sequence of a packed batch, in float32, shape (n,).

    ``log_probs``, shape (tokens,), has at each position that of the next token; a sequence's last one doesn't count.
    """
    row = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    counted = torch.zeros_like(log_probs, dtype=torch.bool)
    # a position counts if the token after it was generated, in the same sequence
    counted[:-1] = mask[1:].bool() & (row[1:] == row[:-1])
    # not a product: others may be infinite
    kept = torch.where(counted, log_probs, 0).float()
    return torch.zeros(len(lengths), dtype=torch.float32, device=log_probs.device).index_add(0, row, kept)


def balanced_weights(desirable: int, undesirable: int) -> tuple[float, float]:
    """Weights of desirable and undesirable trajectories that raise the rarer kind to the other; 1 for one kind only."""
    if not desirable or not undesirable:
        return 1.0, 1.0
    most = max(desirable, undesirable)
    return most / desirable, most / undesirable


def mismatch(questions: Sequence[str]) -> list[int]:
    """Pair each question of a batch with another trajectory's response: its number, for the reference point.

    Each response is used once. Of all rotations of the batch it is the first with the fewest questions that meet a
    response to themselves (a batch may have several trajectories of a question).
    """
    count = len(questions)
    if count < 2:
        raise ValueError("KTO's reference point pairs a question with another's response: it needs 2 per rank")

    def same(shift: int) -> int:
        return sum(questions[i] == questions[(i + shift) % count] for i in range(count))

    shift = min(range(1, count), key=same)
    return [(i + shift) % count for i in range(count)]
