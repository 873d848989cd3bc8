"""Unread keys of verl's config: set, they would change nothing.

``verl_keys.json`` lists them, from the source (:mod:`agentic_video.config.reads`).
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agentic_video.utils.errors import SetupError

FILE = Path(__file__).with_name("verl_keys.json")
_ROLLOUT = "actor_rollout_ref.rollout"
_REWARD = "agentic_video.reward.path and .name"
INSTEAD: Mapping[str, str] = {
    "actor_rollout_ref.actor.grad_clip": "actor_rollout_ref.actor.optim.clip_grad",
    f"{_ROLLOUT}.multi_turn.max_assistant_turns": "agentic_video.system.max_turns",
    f"{_ROLLOUT}.multi_turn.max_user_turns": "agentic_video.system.max_turns",
    f"{_ROLLOUT}.multi_turn.max_parallel_calls": "agentic_video.system.max_calls, where a system has it,",
    f"{_ROLLOUT}.multi_turn.tool_config_path": "agentic_video.system._target_, a system with its tools,",
    f"{_ROLLOUT}.do_sample": f"{_ROLLOUT}.temperature=0",
    "actor_rollout_ref.actor.use_remove_padding": "actor_rollout_ref.model.use_remove_padding",
    "data.truncation": "data.max_prompt_length",
    "data.max_length": "data.max_prompt_length and data.max_response_length",
    "custom_reward_function": _REWARD,
    "reward_model": "reward.reward_model",
    "sandbox_fusion": _REWARD,
    "reward.sandbox_fusion": _REWARD,
}
"""Keys to set instead of unread keys, or blocks of keys."""


@lru_cache(maxsize=1)
def table() -> Mapping[str, Any]:
    """Load the table of :func:`agentic_video.config.reads.table`."""
    read: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return read


def check_unread(config: DictConfig) -> None:
    """Refuse a config that changes unread keys of verl; the SetupError names them, and the key that is read instead."""
    stage = "grpo" if "actor_rollout_ref" in config else "sft"
    values = OmegaConf.to_container(config, resolve=False)
    changed = [key for key, stock in table()[stage]["unread"].items() if not _same(value_at(values, key), stock)]
    if not changed:
        return
    instead = next((what for key in changed for block, what in INSTEAD.items() if _below(key, block)), "")
    remedy = f"set {instead.rstrip(',')} instead" if instead else "leave it as it is"
    keys = ", ".join(changed)
    raise SetupError(f"{keys}: stands in verl's config, but nothing in this run reads it; {remedy}", key=keys)


def _below(key: str, block: str) -> bool:
    return key == block or key.startswith(f"{block}.")


_ABSENT = object()


def value_at(values: Any, key: str) -> Any:
    """The value of a dotted key in nested dictionaries; a mark where it is missing."""
    for name in key.split("."):
        if not isinstance(values, dict) or name not in values:
            return _ABSENT
        values = values[name]
    return values


def _same(value: Any, stock: Any) -> bool:
    return value is _ABSENT or value == stock
