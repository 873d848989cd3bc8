"""Outputs of agent loops in verl's transfer queue: whose they are, and what they carry."""

from collections.abc import Sequence
from typing import Any

import transfer_queue as tq

UNTRAINED = "untrained"
"""In an output's ``extra_fields``, in its tag in the transfer queue, and in ``reward_extra_info``."""
REWARD_KEY, REWARD_KEY_UNITS = "reward_key", 1e4
"""The reward as a metric of dynamic sampling, in units of one over the second."""
REWARDS = "reward_extra_info"
"""In ``extra_fields``: what the episode earned, by name; verl puts it there."""


def key_of(uid: str, session: str | int, output: int) -> str:
    """The key of an output in verl's transfer queue, as verl makes it.

    Args:
        uid: Of the group.
        session: Number of the rollout in its group.
        output: Number of the output in its rollout.
    """
    return f"{uid}_{session}_{output}"


def rollout_of(key: str) -> tuple[str, str]:
    """The group and the number of the rollout of an output's key; see :func:`key_of`."""
    uid, session, _ = key.rsplit("_", 2)
    return uid, session


def extra_fields(keys: Sequence[str], partition_id: str) -> list[dict[str, Any]]:
    """The ``extra_fields`` of outputs, in their order.

    Args:
        keys: Of the outputs; none: nothing is asked for.
        partition_id: Which part of the queue.
    """
    if not keys:
        return []
    data = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=["extra_fields"])
    # a TensorDict hands each out as it is or wrapped
    return [getattr(one, "data", one) for one in data["extra_fields"]]


def rewards_of(keys: Sequence[str], partition_id: str) -> dict[str, dict[str, float]]:
    """What outputs earned, by key; for the arguments see :func:`extra_fields`."""
    extras = extra_fields(keys, partition_id)
    return {key: extra[REWARDS] for key, extra in zip(keys, extras, strict=True)}


def without_signal(members: Sequence[tuple[str, bool, float]]) -> float | None:
    """The mean of a group's metric if the group teaches nothing, else None.

    Fewer than two of its rollouts are trained on, or these have the same metric.

    Args:
        members: Of each output of the group: its rollout, whether that is untrained, and the metric.
    """
    values = {rollout: value for rollout, _, value in members}
    trained = {rollout: value for rollout, untrained, value in members if not untrained}
    if len(trained) > 1 and len(set(trained.values())) > 1:
        return None
    return sum(values.values()) / len(values)
