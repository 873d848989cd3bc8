"""The ``agentic_video`` block of a run's config, as typed settings."""

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agentic_video.config.typed import class_at, dataclass_from, unknown_key
from agentic_video.graders.judge import JudgeConfig
from agentic_video.graders.verifier import VerifierConfig
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import System
from agentic_video.systems.reward_function import RewardConfig
from agentic_video.types.trajectory import EndReason
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.store import StoreConfig

MAX_PICTURES = 64
"""Of one validation: a validation waits for its pictures."""


@dataclass(frozen=True)
class LogConfig:
    """What is logged beside figures.

    Attributes:
        validation_pictures: Most episodes of a validation that are logged as pictures; 0 logs none.

    Raises:
        ValueError: A number that makes no sense.
    """

    validation_pictures: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.validation_pictures <= MAX_PICTURES:
            raise ValueError(f"validation_pictures must be from 0 to {MAX_PICTURES}, got {self.validation_pictures}")


@dataclass(frozen=True)
class Settings:
    """What a run's config says about episodes and rewards.

    Attributes:
        system: The way of watching, with its constants.
        reward: A function of one's own in place of the system's reward, or beside it.
        judge: How to reach the judge of open-ended answers.
        verifier: How to reach the model that rewards show frames to.
        frame_store: The store of decoded frames.
        retrieval: How frames are found by text.
        max_turn_tokens: Most generated tokens of one turn; 0 leaves only the response's budget.
        log: What is logged beside figures.
    """

    system: System
    judge: JudgeConfig
    verifier: VerifierConfig
    frame_store: StoreConfig
    retrieval: RetrievalConfig
    max_turn_tokens: int = 0
    log: LogConfig = field(default_factory=LogConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)


def settings_of(config: DictConfig) -> Settings:
    """The settings in a run's config.

    Raises:
        ValueError: The block is missing, or holds a key that doesn't exist; the message names it.
    """
    block = config.get("agentic_video")
    if block is None:
        raise ValueError("the config has no block 'agentic_video': start from a recipe's yaml")
    resolved = OmegaConf.create(OmegaConf.to_container(block, resolve=True))
    assert isinstance(resolved, DictConfig)
    return _build(resolved)


def limits_of(config: DictConfig) -> TokenLimits:
    """The token budgets of an episode in a run's config."""
    rollout = config.actor_rollout_ref.rollout
    return TokenLimits(
        prompt=rollout.prompt_length,
        response=min(rollout.response_length, (rollout.max_model_len or 1 << 30) - rollout.prompt_length),
        turn=int(config.agentic_video.get("max_turn_tokens", 0)) or rollout.response_length,
    )


def episode_limits(data: DictConfig, settings: Settings) -> TokenLimits:
    """The token budgets of recorded episodes in the ``data`` block of a run that plays none (SFT)."""
    response = int(data.max_response_length)
    return TokenLimits(int(data.max_prompt_length), response, settings.max_turn_tokens or response)


class SettingsCache:
    """The settings of one config object, built once: an agent loop is made for every rollout."""

    def __init__(self) -> None:
        self._config: DictConfig | None = None
        self._settings: Settings | None = None

    def __call__(self, config: DictConfig) -> Settings:
        if self._settings is None or self._config is not config:
            self._config, self._settings = config, settings_of(config)
        return self._settings


PARTS = {
    "judge": JudgeConfig,
    "verifier": VerifierConfig,
    "frame_store": StoreConfig,
    "retrieval": RetrievalConfig,
    "log": LogConfig,
    "reward": RewardConfig,
}
"""The blocks under ``agentic_video`` that are dataclasses of their own, beside ``system``."""

OTHERS = (
    "system",
    "max_turn_tokens",
    "toyworld",
    "plan",
    "clips_per_prompt",
    "episodes_dir",
    "episodes_per_step",
    "validate_greedy",
    "oversample",
)


_LEAST = {"max_turns": 1, "max_images": 1, "size_factor": 1, "max_asides": 0}
"""What every system has, and the least that makes sense."""


def _build(block: DictConfig) -> Settings:
    known = {*PARTS, *OTHERS}
    for key in map(str, block):
        if key not in known:
            raise ValueError(unknown_key("agentic_video", key, known))
    if "system" not in block or "_target_" not in block.system:
        raise ValueError("agentic_video.system._target_ must name a System class")
    parts: dict[str, Any] = {
        name: dataclass_from(cls, OmegaConf.to_container(block[name]), f"agentic_video.{name}")
        for name, cls in PARTS.items()
        if block.get(name) is not None
    }
    for name in ("judge", "verifier", "frame_store", "retrieval"):
        parts.setdefault(name, PARTS[name]())
    return Settings(
        system=_system(OmegaConf.to_container(block.system)),
        max_turn_tokens=int(block.get("max_turn_tokens", 0)),
        **parts,
    )


def _system(values: Any) -> System:
    where = "agentic_video.system"
    cls = class_at(values["_target_"], f"{where}._target_")
    if not issubclass(cls, System) or not is_dataclass(cls):
        raise ValueError(f"{where}._target_: {values['_target_']} is not a System that is a dataclass")
    system: System = dataclass_from(cls, values, where)
    for key, least in _LEAST.items():
        if getattr(system, key) < least:
            raise ValueError(f"{where}.{key} must be at least {least}, got {getattr(system, key)}")
    if stop := next((one for one in system.stop if one in system.reply_prefix), ""):
        raise ValueError(f"{where}.reply_prefix holds {stop!r}, which ends a turn (stop)")
    for one in fields(cls):
        value = getattr(system, one.name)
        if isinstance(value, int) and isinstance(one.default, int) and value < 0 <= one.default:
            raise ValueError(f"{where}.{one.name} can't be negative, got {value}")
    for end in system.untrained_ends:
        if end not in list(EndReason):
            known = ", ".join(EndReason)
            raise ValueError(f"{where}.untrained_ends: {end!r} is no reason why an episode ends; there are {known}")
    return system
