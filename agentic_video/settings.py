"""The ``agentic_video`` block of a run's config, as typed settings."""

from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agentic_video.rewards.judge import JudgeConfig
from agentic_video.systems.base import System
from agentic_video.video.store import StoreConfig


@dataclass(frozen=True)
class Settings:
    """What a run's config says about episodes and rewards.

    Attributes:
        system: The way of watching, with its constants.
        judge: How to reach the judge of open-ended answers.
        frame_store: The store of decoded frames.
        max_turn_tokens: Most generated tokens of one turn; 0 leaves only the response's budget.
    """

    system: System
    judge: JudgeConfig
    frame_store: StoreConfig
    max_turn_tokens: int = 0


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


class SettingsCache:
    """The settings of one config object, built once: an agent loop is made for every rollout."""

    def __init__(self) -> None:
        self._config: DictConfig | None = None
        self._settings: Settings | None = None

    def __call__(self, config: DictConfig) -> Settings:
        if self._settings is None or self._config is not config:
            self._config, self._settings = config, settings_of(config)
        return self._settings


def _build(block: DictConfig) -> Settings:
    import hydra

    known = {"system", "judge", "frame_store", "max_turn_tokens", "episodes_dir", "episodes_per_step"}
    unknown = set(block) - known
    if unknown:
        raise ValueError(f"agentic_video.{min(map(str, unknown))}: unknown key; known keys are {sorted(known)}")
    if "system" not in block or "_target_" not in block.system:
        raise ValueError("agentic_video.system._target_ must name a System class")
    try:
        system = hydra.utils.instantiate(block.system, _convert_="all")
        if not isinstance(system, System):
            raise TypeError(f"{block.system['_target_']} is not a System")
    except Exception as error:
        raise ValueError(f"agentic_video.system: {error}") from error
    return Settings(
        system=system,
        judge=_dataclass(JudgeConfig, block.get("judge"), "judge"),
        frame_store=_dataclass(StoreConfig, block.get("frame_store"), "frame_store"),
        max_turn_tokens=int(block.get("max_turn_tokens", 0)),
    )


def _dataclass(cls: type[Any], values: DictConfig | None, name: str) -> Any:
    try:
        return cls(**(OmegaConf.to_container(values) if values is not None else {}))  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ValueError(f"agentic_video.{name}: {error}") from error
