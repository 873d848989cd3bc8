"""Teachers: who plays a system's episodes, so that others learn from them.

A teacher is any model that an evaluation can play: an OpenAI-compatible server, or a checkpoint in this process.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agentic_video.config.compose import check_recipe, compose_recipe
from agentic_video.config.overrides import check_overrides
from agentic_video.config.settings import Settings, limits_of, settings_of
from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.backends.chat import ChatBackend
from agentic_video.evaluation.context import EvalContext, require_encoder
from agentic_video.evaluation.model import (
    ModelOptions,
    ModelSpec,
    check_taught,
    fit_images,
    model_spec,
    require_model,
    served_model,
)
from agentic_video.evaluation.plan import EvalPlan
from agentic_video.evaluation.results import key_of
from agentic_video.evaluation.runner import play_one
from agentic_video.rollout.chat_policy import ChatConfig, Usage
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.synthesis.inputs import content_of
from agentic_video.synthesis.jobs import Key
from agentic_video.systems.base import System
from agentic_video.systems.shown import shows_clips
from agentic_video.tools.base import Retriever
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.utils.content import checkpoint_digest
from agentic_video.utils.errors import SetupError
from agentic_video.utils.imports import make_importable

JUDGED_BY = ("model", "temperature", "max_tokens", "max_answer_chars")
FOUND_BY = ("model", "pretrained", "max_prompt_chars")
"""What of the judge and of the retrieval grades and frames depend on; how they are reached may change."""

UNLIMITED = 1 << 30
"""A server knows its own context; its tokens aren't those of the model that will learn."""

TOLD_BY_USER = "agentic_video.system.observation_role=user"


@dataclass(frozen=True)
class TeacherOptions:
    """A teacher as a command names it."""

    recipe: Path  # folder of the recipe whose system is played
    profile: str  # the recipe's config: `laptop` or `cluster`
    model: ModelOptions  # the model; `concurrency` bounds the requests to a server
    timeout: float = ChatConfig.timeout  # seconds for a server's reply
    max_tokens: int | None = None  # most tokens of a server's reply; None takes the recipe's `max_turn_tokens`
    # whether samples are told apart by their seed: a server gets the model's plus the sample's number
    seeded: bool = False
    overrides: tuple[str, ...] = ()  # hydra overrides of the recipe's config
    # how messages call the option that names the model; its name on a server is `<option>-name`
    option: str = "--teacher"

    def __post_init__(self) -> None:
        check_overrides(self.overrides)
        check_recipe(self.recipe)


@dataclass(frozen=True)
class Teacher:
    """A teacher with the system that it plays."""

    settings: Settings  # of the recipe's config
    limits: TokenLimits  # token budgets of an episode
    spec: ModelSpec  # the model
    seeded: bool = False  # whether samples are told apart by their seed

    @property
    def system(self) -> System:
        return self.settings.system

    @property
    def name(self) -> str:
        """As records name it."""
        return self.spec.chat.model or self.spec.model

    def identity(self) -> dict[str, Any]:
        """On what of this the results depend: plain data."""
        return {
            "teacher": self.spec.model,
            "teacher_name": self.spec.chat.model,
            "teacher_content": checkpoint_digest(self.spec.model) or None if self.spec.model else None,
            "system": {"class": type(self.system).__qualname__, **asdict(self.system)},  # type: ignore[call-overload]
            "limits": asdict(self.limits),
            "sampling": {
                "temperature": self.spec.temperature,
                "top_p": self.spec.top_p,
                "seed": self.spec.seed if self.seeded else None,
                "max_tokens": self.spec.chat.max_tokens,
            },
            **({"template_kwargs": dict(self.spec.template_kwargs)} if self.spec.template_kwargs else {}),
            "judge": _picked(self.settings.judge, JUDGED_BY) if self.settings.judge.base_url else None,
            "retrieval": _picked(self.settings.retrieval, FOUND_BY),
        }

    def context(self, folder: Path, concurrency: int) -> EvalContext:
        """What the episodes of this process share; made where its event loop runs."""
        plan = EvalPlan(
            folder=folder,
            system=self.system,
            model=self.spec,
            limits=self.limits,
            frame_store=self.settings.frame_store,
            retrieval=self.settings.retrieval,
            judge=self.settings.judge,
            concurrency=concurrency,
            provenance={},
        )
        return EvalContext(plan)

    def backends(self, context: EvalContext, samples: int) -> list[Backend]:
        """Who plays each sample of a question: the same model, told apart by the seed where a server gets one."""
        if self.spec.engine != "chat" or not self.seeded:
            return [context.backend] * samples
        chat, side = self.spec.chat, context.backend.visual_token_side
        seeded = (replace(chat, fields={**chat.fields, "seed": self.spec.seed + number}) for number in range(samples))
        return [ChatBackend(replace(self.spec, chat=one), side) for one in seeded]

    def check_samples(self, samples: int) -> None:
        """Whether several samples of a question can differ."""
        if samples > 1 and self.spec.temperature == 0:
            raise SetupError("--samples says the same each time at temperature 0: set --temperature")


def prepare(options: TeacherOptions) -> Teacher:
    """The teacher that a command names."""
    make_importable(options.recipe)
    require_model(options.model, options.option, f"{options.option}-name")
    model = options.model
    config = compose_recipe(options.recipe, options.profile, options.overrides)
    settings = settings_of(config)
    if model.engine == "chat" and settings.system.observation_role != "user":
        # Most servers take a tool's message only after a call of their own API's kind. An override has the last word.
        config = compose_recipe(options.recipe, options.profile, [TOLD_BY_USER, *options.overrides])
        settings = settings_of(config)
    check_taught(model.model, settings.system, options.option)
    require_encoder(settings.retrieval)
    limits = limits_of(config)
    if model.engine == "chat" and not model.model_name:
        name = served_model(model.model, model.api_key_env, option=options.option, name_option=f"{options.option}-name")
        model = replace(model, model_name=name)
    spec = fit_images(model_spec(model, config), settings.system.max_images, shows_clips(settings.system))
    if model.engine == "chat":
        chat = replace(spec.chat, timeout=options.timeout, max_tokens=options.max_tokens or spec.chat.max_tokens)
        spec, limits = replace(spec, chat=chat), TokenLimits(UNLIMITED, UNLIMITED, chat.max_tokens or limits.turn)
    return Teacher(settings, limits, spec, options.seeded)


def samples_of(rows: Sequence[VideoQA], samples: int) -> dict[Key, tuple[VideoQA, int]]:
    """The samples of some questions for a job: each question with the number of its sample."""
    return {(*key_of(qa), number, content_of(qa)): (qa, number) for qa in rows for number in range(samples)}


def sampler(
    teacher: Teacher, context: EvalContext, retriever: Retriever | None, samples: int, source: str
) -> Callable[[VideoQA, int], Awaitable[Record]]:
    """Who plays and grades a sample of a question, as in evaluation."""
    contexts = [context.with_backend(backend) for backend in teacher.backends(context, samples)]

    async def play(qa: VideoQA, number: int) -> Record:
        record = await play_one(contexts[number], retriever, qa, number)
        provenance = {"source": source, "model": teacher.name, "sample": number}
        return replace(record, provenance=provenance)

    return play


def _picked(config: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(config, name) for name in names}


def recorded_usage(record: Record) -> Usage:
    """What an episode cost that was played as in evaluation."""
    rewards = record.rewards
    return Usage(int(rewards["prompt_tokens"]), int(rewards["completion_tokens"]), len(record.trajectory.turns))
