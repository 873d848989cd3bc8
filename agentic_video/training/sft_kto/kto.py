"""The loss of KTO: preferences from single trajectories that are labelled desirable or undesirable.

After *KTO: Model Alignment as Prospect Theoretic Optimization* (section 4.1, equations 7 and 8): a trajectory's implied
reward is the log-ratio of its probability under the policy and under the frozen reference, summed over the tokens that
the model said. It is compared with a reference point, an estimate of the KL divergence between the two from pairs of a
question and somebody else's response. Everything here is a pure function of tensors; nothing knows verl.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed


@dataclass(frozen=True)
class KtoLoss:
    """The constants of the loss.

    Attributes:
        beta: How strongly the policy is held to the reference.
        desirable_weight: Weight of the desirable trajectories' losses.
        undesirable_weight: Weight of the undesirable ones'.

    Raises:
        ValueError: A constant is out of range.
    """

    beta: float = 0.1
    desirable_weight: float = 1.0
    undesirable_weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise ValueError(f"beta must be above 0, got {self.beta}")
        for name in ("desirable_weight", "undesirable_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")

    def losses(
        self, policy: torch.Tensor, reference: torch.Tensor, desirable: torch.Tensor, kl: torch.Tensor
    ) -> torch.Tensor:
        """The weighted loss of each trajectory; its gradient reaches ``policy`` only.

        Args:
            policy: Log-probability of each trajectory under the policy, shape (n,).
            reference: The same under the reference, shape (n,).
            desirable: Whether each is desirable, shape (n,).
            kl: The reference point (:func:`reference_point`), one number or one a trajectory.

        Returns:
            Losses between 0 and the weights, shape (n,).
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

    Args:
        policy: Log-probability of each mismatched pair's response under the policy, shape (n,).
        reference: The same under the reference, shape (n,).
        group: The processes whose pairs are averaged; None: this one's alone. All must call.

    Raises:
        ValueError: There is no pair at all.
    """
    ratios = (policy - reference).detach().float()
    total = torch.stack([ratios.sum(), ratios.new_tensor(float(ratios.numel()))])
    if group is not None:
        torch.distributed.all_reduce(total, op=torch.distributed.ReduceOp.SUM, group=group)
    if total[1] == 0:
        raise ValueError("the reference point needs at least one mismatched pair")
    return (total[0] / total[1]).clamp(min=0)


def sequence_log_probs(log_probs: torch.Tensor, mask: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Log-probability of what the model said in each sequence of a packed batch.

    Args:
        log_probs: At each position the log-probability of the next token, all sequences one after the other, shape
            (tokens,). What stands at a sequence's last position doesn't count.
        mask: 1 for each token that the model said, shape (tokens,).
        lengths: Tokens of each sequence, shape (n,).

    Returns:
        One sum a sequence, in float32, shape (n,).
    """
    row = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    said = torch.zeros_like(log_probs, dtype=torch.bool)
    # a position counts when the token after it was said, in the same sequence
    said[:-1] = mask[1:].bool() & (row[1:] == row[:-1])
    # not a product: what isn't counted may be infinite
    kept = torch.where(said, log_probs, 0).float()
    return torch.zeros(len(lengths), dtype=torch.float32, device=log_probs.device).index_add(0, row, kept)


def balanced_weights(desirable: int, undesirable: int) -> tuple[float, float]:
    """Weights that give both kinds the same say, by raising that of the rarer kind.

    Args:
        desirable: Number of desirable trajectories.
        undesirable: Number of undesirable ones.

    Returns:
        Weight of the desirable ones, weight of the undesirable ones; 1 and 1 when there is one kind only.
    """
    if not desirable or not undesirable:
        return 1.0, 1.0
    most = max(desirable, undesirable)
    return most / desirable, most / undesirable


def mismatch(questions: Sequence[str]) -> list[int]:
    """Whose response each question of a batch is paired with, for the reference point.

    Each response is used once. Of all rotations of the batch it is the first with the fewest questions that meet a
    response to themselves (several trajectories of one question may be in a batch).

    Args:
        questions: Identity of each trajectory's question.

    Returns:
        For each trajectory the number of the one that lends its response, never its own.

    Raises:
        ValueError: Fewer than two trajectories: nothing can be paired.
    """
    count = len(questions)
    if count < 2:
        raise ValueError("KTO's reference point pairs a question with another's response: it needs 2 per rank")

    def same(shift: int) -> int:
        return sum(questions[i] == questions[(i + shift) % count] for i in range(count))

    shift = min(range(1, count), key=same)
    return [(i + shift) % count for i in range(count)]
