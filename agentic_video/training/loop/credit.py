"""Credit by turn (``agentic_video.credit: turn``): each turn's tokens get the advantage of what follows from it on.

Where a system's ``Score`` says what single turns earned, the advantage of turn t is its return, r_t + gamma * r_(t+1) +
..., less the mean and over the standard deviation of the returns that the group's rollouts have from their turn t on
(GTPO, arXiv 2511.14846). Normalised rewards of single turns, added up as in MT-GRPO (arXiv 2505.11821), would take off
a mean for each turn that is played: every further turn would cost what turns earn on average (verl issue 7244).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

BY_TURN = "grpo_by_turn"
"""The name of the advantage in verl's registry (``algorithm.adv_estimator``)."""
TURN_REWARD = "turn_reward_"
"""Start of the keys of ``reward_extra_info`` that hold what turns earned; the first turn is 1."""
EPSILON = 1e-6
"""Added to a standard deviation, as in verl's GRPO."""


def turn_rewards(reward: float, turns: Sequence[float], played: int, most: int) -> dict[str, float]:
    """Rewards of turns, under keys that are the same for all episodes of a system, of at most ``most`` turns.

    What is left of the episode's reward after the score's ``turns`` is that of the last turn ``played``.
    """
    if len(turns) > played:
        raise ValueError(f"Score.turns has {len(turns)} rewards for an episode of {played} turns")
    earned = [*turns, *([0.0] * (most - len(turns)))]
    earned[max(0, min(played, most) - 1)] += reward - sum(turns)
    return {f"{TURN_REWARD}{number}": value for number, value in enumerate(earned, start=1)}


def spread(scores: torch.Tensor, mask: torch.Tensor, info: Mapping[str, float]) -> torch.Tensor:
    """An output's reward, at its last token, moved to the ends of the turns (runs of ``mask``) that earned it."""
    earned = [info[key] for number in range(1, len(info) + 1) if (key := f"{TURN_REWARD}{number}") in info]
    if not earned:
        return scores
    made = torch.zeros_like(scores)
    made[-1] = scores.sum()
    following = torch.nn.functional.pad(mask, (0, 1))[1:]
    for end, value in zip(((mask == 1) & (following == 0)).nonzero().flatten().tolist(), earned, strict=False):
        made[end] += value
        made[-1] -= value
    return made


@register_adv_est(BY_TURN)
def by_turn(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Any],
    config: Any = None,
    **others: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Group-relative returns by turn; a turn that no other rollout of its group has reached has the advantage 0.

    Rewards, each turn's at its last token, and the mask, whose runs are the turns, have the shape (rollouts, tokens).
    ``config`` is verl's ``algorithm``: ``gamma`` from turn to turn, and ``norm_adv_by_std_in_grpo``.
    """
    settings = config if config is not None else {}
    gamma = float(settings.get("gamma", 1.0))
    by_std = bool(settings.get("norm_adv_by_std_in_grpo", True))
    advantages, returns = torch.zeros_like(token_level_rewards), torch.zeros_like(token_level_rewards)
    found: dict[tuple[Any, int], list[tuple[int, slice, float]]] = defaultdict(list)
    for row, (rewards, mask) in enumerate(zip(token_level_rewards, response_mask, strict=True)):
        edges = torch.diff(torch.nn.functional.pad(mask.int(), (1, 1)))
        starts = (edges == 1).nonzero().flatten().tolist()
        ends = (edges == -1).nonzero().flatten().tolist()
        value = 0.0
        for turn in reversed(range(len(starts))):
            # What lies between turns, or after the last, belongs to the turn before it.
            until = starts[turn + 1] if turn + 1 < len(starts) else len(rewards)
            value = float(rewards[starts[turn] : until].sum()) + gamma * value
            found[index[row], turn].append((row, slice(starts[turn], ends[turn]), value))
    for members in found.values():
        values = torch.tensor([value for _, _, value in members])
        scaled = torch.zeros(1)
        if len(members) > 1:
            scaled = values - values.mean()
            if by_std:
                scaled = scaled / (values.std() + EPSILON)
        for (row, tokens, value), advantage in zip(members, scaled.tolist(), strict=True):
            advantages[row, tokens], returns[row, tokens] = advantage, value
    mask = response_mask.to(advantages.dtype)
    return advantages * mask, returns * mask
