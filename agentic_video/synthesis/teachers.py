"""Teachers: models that play a system's episodes, so that others learn from them.

A teacher is any model that an evaluation can play: an OpenAI-compatible server, or a checkpoint in this process.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt, PositiveInt

from agentic_video.config.compose import check_recipe, compose_recipe
from agentic_video.config.overrides import check_overrides
from agentic_video.config.settings import Settings, limits_of, settings_of
from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.backends.chat import ChatBackend
from agentic_video.evaluation.context import EvalContext, require_encoder
from agentic_video.evaluation.engine import EngineOptions, RecipeOptions
from agentic_video.evaluation.model import (
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
from agentic_video.rollout.chat_policy import Usage
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.synthesis.inputs import content_of
from agentic_video.synthesis.jobs import JobOptions, Key, Outcome, SynthesisJob
from agentic_video.systems.base import System
from agentic_video.systems.shown import shows_clips
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.utils.content import checkpoint_digest
from agentic_video.utils.errors import SetupError
from agentic_video.utils.imports import make_importable
from agentic_video.utils.option_types import ModelName, Overrides

JUDGE_IDENTITY = ("model", "temperature", "max_tokens", "max_answer_chars")
RETRIEVAL_IDENTITY = ("model", "pretrained", "max_prompt_chars")
"""Settings that change grades and frames, unlike those of the connection."""

UNLIMITED = 1 << 30
"""A server knows its own context; its tokens aren't those of the model that will learn."""

OBSERVED_BY_USER = "agentic_video.system.observation_role=user"


@dataclass(frozen=True, kw_only=True)
class TeacherOptions(JobOptions, EngineOptions, RecipeOptions):
    """A job in which a teacher plays episodes."""

    teacher: ModelName = ""
    """address of an OpenAI-compatible server (http://host:8000/v1), or folder of a checkpoint"""
    teacher_name: str = ""
    """name of the model on the server, where it has several"""
    seed: NonNegativeInt | None = None
    """of sampling; a server gets it plus the number of the sample (default: it gets none)"""
    max_tokens: PositiveInt | None = None
    """most tokens of a server's reply (default: the recipe's max_turn_tokens)"""
    overrides: Overrides = ()


@dataclass(frozen=True)
class Teacher:
    """A teacher with the system that it plays."""

    settings: Settings
    limits: TokenLimits
    spec: ModelSpec
    seeded: bool = False

    @property
    def system(self) -> System:
        return self.settings.system

    @property
    def name(self) -> str:
        """The name in records."""
        return self.spec.chat.model or self.spec.model

    def identity(self) -> dict[str, Any]:
        """Everything that the results depend on, as plain data."""
        judge, retrieval = self.settings.judge, self.settings.retrieval
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
            "judge": {name: getattr(judge, name) for name in JUDGE_IDENTITY} if judge.base_url else None,
            "retrieval": {name: getattr(retrieval, name) for name in RETRIEVAL_IDENTITY},
        }

    def context(self, folder: Path, concurrency: int) -> EvalContext:
        """Engine, frames and graders of this process's episodes; made where its event loop runs."""
        return EvalContext(EvalPlan(folder, self.settings, self.spec, self.limits, concurrency))

    def backends(self, context: EvalContext, samples: int) -> list[Backend]:
        """The backend of each sample of a question; a server's samples differ by seed."""
        if self.spec.engine != "chat" or not self.seeded:
            return [context.backend] * samples
        chat, side = self.spec.chat, context.backend.visual_token_side
        seeded = (replace(chat, fields={**chat.fields, "seed": self.spec.seed + number}) for number in range(samples))
        return [ChatBackend(replace(self.spec, chat=config), side) for config in seeded]

    def check_samples(self, samples: int) -> None:
        """Check that several samples of a question can differ."""
        if samples > 1 and self.spec.temperature == 0:
            raise SetupError("--samples are all the same at temperature 0: set --temperature", key="--samples")


def prepare(
    options: TeacherOptions, model: str, name: str, option: str = "--teacher", default_system: str = ""
) -> Teacher:
    """A model as player of a system, once its server answers or its checkpoint is there.

    Args:
        name: Of the model on a server.
        option: Names the model, for messages; the option of its name is ``<option>-name``.
        default_system: Played where the options name none.
    """
    check_overrides(options.overrides)
    chosen = options.model_options(model, name, seed=options.seed or 0, concurrency=options.concurrency, option=option)
    recipe, profile = options.recipe_folder(default_system), options.profile_of(chosen.engine)
    name_option = f"{option}-name"
    check_recipe(recipe)
    make_importable(recipe)
    require_model(chosen, option, name_option)
    config = compose_recipe(recipe, profile, options.overrides)
    settings = settings_of(config)
    served = chosen.engine == "chat"
    if served and settings.system.observation_role != "user":
        # Most servers take a tool's message only after a call of their own API's kind. An override has the last word.
        config = compose_recipe(recipe, profile, [OBSERVED_BY_USER, *options.overrides])
        settings = settings_of(config)
    check_taught(model, settings.system, option)
    require_encoder(settings.retrieval)
    if served and not name:
        name = served_model(model, options.api_key_env, option=option, name_option=name_option)
        chosen = replace(chosen, model_name=name)
    spec = fit_images(model_spec(chosen, config), settings.system.max_images, shows_clips(settings.system))
    limits = limits_of(config)
    if served:
        chat = replace(spec.chat, timeout=options.timeout, max_tokens=options.max_tokens or spec.chat.max_tokens)
        spec, limits = replace(spec, chat=chat), TokenLimits(UNLIMITED, UNLIMITED, chat.max_tokens or limits.turn)
    return Teacher(settings, limits, spec, options.seed is not None)


Sample = tuple[VideoQA, int]
"""A question, and the number of one of its episodes."""


def samples_of(rows: Sequence[VideoQA], samples: int) -> dict[Key, Sample]:
    """The samples of some questions, for a job."""
    return {(*key_of(qa), number, content_of(qa)): (qa, number) for qa in rows for number in range(samples)}


async def play_samples(
    job: SynthesisJob,
    players: Mapping[tuple[str, ...], Teacher],
    rows: Sequence[VideoQA],
    samples: int,
    source: str,
    *,
    need_grades: bool = False,
) -> list[tuple[Key, Record]]:
    """Play and grade samples of some questions as items of a job; returns the finished ones with their keys.

    ``players`` are by the first words of their items' keys; ``need_grades`` fails items without a grade.
    """
    with ExitStack() as stack:
        contexts = {
            key: stack.enter_context(closing(player.context(job.folder, job.options.concurrency)))
            for key, player in players.items()
        }
        retriever = next(iter(contexts.values())).retriever()  # one for all players
        backends = {key: player.backends(contexts[key], samples) for key, player in players.items()}
        items: dict[Key, tuple[tuple[str, ...], VideoQA, int]] = {
            (*player, *key): (player, *sample)
            for player in players
            for key, sample in samples_of(rows, samples).items()
        }

        async def play(item: tuple[tuple[str, ...], VideoQA, int]) -> Outcome:
            player, qa, number = item
            record = await play_one(contexts[player].with_backend(backends[player][number]), retriever, qa, number)
            if need_grades and "acc" not in record.rewards:
                raise SetupError(f"row {qa.id} couldn't be graded: is agentic_video.judge set, and does it reply?")
            usage = Usage(
                int(record.rewards["prompt_tokens"]),
                int(record.rewards["completion_tokens"]),
                len(record.trajectory.turns),
            )
            provenance = {"source": source, "model": players[player].name, "sample": number}
            return Outcome(result=replace(record, provenance=provenance).to_dict(), usage=usage)

        return [(key, Record.from_dict(job.outcome(key).result)) for key in await job.play(items, play)]
