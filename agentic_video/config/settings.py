"""The ``agentic_video`` block of a run's config, as typed settings."""

import re
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args, get_type_hints

from omegaconf import DictConfig, OmegaConf

from agentic_video.config.typed import check_types, class_at, dataclass_from, unknown_key
from agentic_video.graders.judge import JudgeConfig
from agentic_video.graders.verifier import VerifierConfig
from agentic_video.rollout.chat_template import kwargs_of
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import System
from agentic_video.systems.prompts import check_places, load_prompt, packaged_prompts
from agentic_video.systems.reward_function import RewardConfig
from agentic_video.types.trajectory import EndReason
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.sizes import PixelBudget
from agentic_video.video.store_config import StoreConfig

MAX_PICTURES = 64
"""Of one validation: a validation waits for its pictures."""


@dataclass(frozen=True)
class LogConfig:
    """What is logged beside figures.

    Attributes:
        validation_pictures: Most episodes of a validation that are logged as pictures; 0 logs none.
        format_alarm_after: Warn when hardly any of the first so many episodes of a run keeps the format; 0 never warns
            (a reward of your own without a format).

    Raises:
        ValueError: A number that makes no sense.
    """

    validation_pictures: int = 3
    format_alarm_after: int = 64

    def __post_init__(self) -> None:
        if self.format_alarm_after < 0:
            raise ValueError(f"format_alarm_after can't be negative, got {self.format_alarm_after}")
        if not 0 <= self.validation_pictures <= MAX_PICTURES:
            raise ValueError(f"validation_pictures must be from 0 to {MAX_PICTURES}, got {self.validation_pictures}")


Credit = Literal["trajectory", "turn"]
"""GRPO's advantage: of an episode's reward, or for each turn of what was earned from it on."""

HiddenFrom = tuple[str, str, Literal["opening", "observations"]]
"""A tag's name; ``last`` for the last one of an episode, or the number from which on (the first is 1); the frames that
tokens inside it don't see."""


@dataclass(frozen=True)
class SftConfig:
    """What SFT learns of a recorded episode.

    Attributes:
        loss_turns: Turns with loss: ``all``, ``last``, ``last_N`` (the last N), or ``row``: those that the row lists in
            ``extra_info.loss_turns`` (the first is 1). A turn that the record marks as a mistake never has any.
        loss_tags: Within these turns, loss only on what stands in these tags, the tags included; none: on all.
        hidden: What tokens inside a tag don't see: lists of a tag's name, ``last`` or the number from which on, and
            ``opening`` or ``observations`` (the frames of either). The tags themselves see all.
        hidden_probability: Of each batch, the chance that it is so.

    Raises:
        ValueError: A value that makes no sense.
    """

    loss_turns: str = "all"
    loss_tags: tuple[str, ...] = ()
    hidden: tuple[HiddenFrom, ...] = ()
    hidden_probability: float = 0.0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"all|last|row|last_[1-9][0-9]{0,3}", self.loss_turns):
            raise ValueError(f"loss_turns must be all, last, last_N or row, got {self.loss_turns!r}")
        for tag in (*self.loss_tags, *(tag for tag, _, _ in self.hidden)):
            if not re.fullmatch(r"[A-Za-z_][\w-]*", tag):
                raise ValueError(f"{tag!r} is no tag's name: write answer for <answer>...</answer>")
        for _, which, _ in self.hidden:
            if not re.fullmatch(r"last|[1-9][0-9]{0,3}", which):
                raise ValueError(f"hidden: expected last or a number from 1 on, got {which!r}")
        if not 0 <= self.hidden_probability <= 1:
            raise ValueError(f"hidden_probability must be from 0 to 1, got {self.hidden_probability}")
        if bool(self.hidden) != bool(self.hidden_probability):
            raise ValueError("hidden and hidden_probability need each other")


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
        sft: What SFT learns of a recorded episode.
        credit: Which reward an advantage is made of.
    """

    system: System
    judge: JudgeConfig
    verifier: VerifierConfig
    frame_store: StoreConfig
    retrieval: RetrievalConfig
    max_turn_tokens: int = 0
    log: LogConfig = field(default_factory=LogConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    credit: Credit = "trajectory"


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
    """The token budgets of an episode in a run's config.

    Raises:
        SetupError: A sequence of the engine has no room for more than the prompt.
    """
    rollout = config.actor_rollout_ref.rollout
    room = (rollout.max_model_len or 1 << 30) - rollout.prompt_length
    if room <= 0:
        raise SetupError(
            f"actor_rollout_ref.rollout.max_model_len={rollout.max_model_len} leaves no token beyond "
            f"data.max_prompt_length={rollout.prompt_length}; set it to their sum with data.max_response_length"
        )
    return TokenLimits(
        prompt=rollout.prompt_length,
        response=min(rollout.response_length, room),
        turn=int(config.agentic_video.get("max_turn_tokens", 0)) or rollout.response_length,
    )


def template_kwargs_of(config: DictConfig) -> dict[str, Any]:
    """The variables that a run's chat template is given (``data.apply_chat_template_kwargs``).

    Raises:
        SetupError: One isn't the user's to give.
    """
    return kwargs_of(config.get("data"))


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
    "credit",
    "stall_seconds",
)


_LEAST = {"max_turns": 1, "max_images": 1, "size_factor": 1, "max_asides": 0}
"""What every system has, and the least that makes sense."""


def _build(block: DictConfig) -> Settings:
    known = {*PARTS, *OTHERS, "sft"}
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
    system, credit = _system(OmegaConf.to_container(block.system)), block.get("credit", "trajectory")
    if credit not in get_args(Credit):
        raise ValueError(f"agentic_video.credit must be one of {', '.join(get_args(Credit))}, got {credit!r}")
    if credit == "turn" and system.context != "all":
        raise ValueError(
            f"agentic_video.credit=turn: {system.name} has a sequence for each turn (context={system.context}), "
            "which verl gives the same advantage; leave it at trajectory"
        )
    if credit == "turn" and system.train_asides:
        raise ValueError(
            "agentic_video.credit=turn: agentic_video.system.train_asides=True makes each aside a sequence of its own, "
            "which would count as one more rollout's first turn; set credit=trajectory, or train_asides=False"
        )
    return Settings(
        system=system,
        credit=credit,
        max_turn_tokens=int(block.get("max_turn_tokens", 0)),
        sft=dataclass_from(
            SftConfig, OmegaConf.to_container(block.get("sft") or OmegaConf.create({})), "agentic_video.sft"
        ),
        **parts,
    )


def _system(values: Any) -> System:
    where = "agentic_video.system"
    cls = class_at(values["_target_"], f"{where}._target_")
    if not issubclass(cls, System) or not is_dataclass(cls):
        raise ValueError(f"{where}._target_: {values['_target_']} is not a System that is a dataclass")
    system: System = dataclass_from(cls, values, where)
    check_types(system, get_type_hints(System), where)  # whatever its class says that they may be
    for key, least in _LEAST.items():
        if getattr(system, key) < least:
            raise ValueError(f"{where}.{key} must be at least {least}, got {getattr(system, key)}")
    if stop := next((one for one in system.stop if one in system.reply_prefix), ""):
        raise ValueError(f"{where}.reply_prefix holds {stop!r}, which ends a turn (stop)")
    for one in fields(cls):
        value = getattr(system, one.name)
        if isinstance(value, int) and isinstance(one.default, int) and value < 0 <= one.default:
            raise ValueError(f"{where}.{one.name} can't be negative, got {value}")
    _check_prompts(system, where)
    if {"min_pixels", "max_pixels"} <= {one.name for one in fields(cls)}:
        constants: Any = system
        try:
            PixelBudget(constants.min_pixels, constants.max_pixels, system.size_factor)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    for end in system.untrained_ends:
        if end not in list(EndReason):
            known = ", ".join(EndReason)
            raise ValueError(f"{where}.untrained_ends: {end!r} is no reason why an episode ends; there are {known}")
    return system


def _check_prompts(constants: Any, where: str) -> None:
    """Make sure that there are the templates that a system, or a part of it, names, and that they can be filled in.

    A field names one where its default does. ``prompt`` of somebody's own system is asked only where it looks like a
    name or a path: it may hold the text itself."""
    for one in fields(constants):
        value = getattr(constants, one.name)
        if is_dataclass(value):
            _check_prompts(value, f"{where}.{one.name}")
        elif isinstance(value, str) and value:
            named = one.default in packaged_prompts() or (one.name == "prompt" and len(value.split()) == 1)
            try:
                text = load_prompt(value) if named else value
                if isinstance(one.default, str) and value != one.default:
                    check_places(text, packaged_prompts().get(one.default, one.default))
            except (OSError, ValueError) as error:
                raise ValueError(f"{where}.{one.name}: {one_line(error)}") from error
