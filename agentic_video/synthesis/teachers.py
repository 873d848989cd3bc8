"""Teachers: the options with which a command reaches one, what its episodes share, and questions beside the episodes.

A teacher is any model that an evaluation can play: an OpenAI-compatible server, or a checkpoint in this process.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agentic_video.config.settings import Settings
from agentic_video.evaluation.backends.base import Backend, usage_of
from agentic_video.evaluation.context import EvalContext
from agentic_video.evaluation.model import ModelSpec, choose_engine, served_model
from agentic_video.evaluation.plan import Plan
from agentic_video.rollout.chat_policy import ChatConfig, Usage
from agentic_video.rollout.policy import EngineError
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.synthesis.inputs import positive
from agentic_video.synthesis.jobs import Prices
from agentic_video.systems.base import EpisodeView, System
from agentic_video.types.message import Message
from agentic_video.types.trajectory import FrameRef, Turn
from agentic_video.utils.errors import SetupError

UNLIMITED = 1 << 30
"""A server knows its own context; its tokens aren't those of the model that will learn."""
MAX_TURN_CHARS = 6_000
"""Of a turn as another model is shown it."""


def add_arguments(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """The options that all commands with a teacher share.

    Args:
        required: Whether a system and a teacher must be named.
    """
    which = parser.add_mutually_exclusive_group(required=required)
    which.add_argument("--system", help="name of a recipe in ./recipes, e.g. videozoomer")
    which.add_argument("--recipe", type=Path, help="folder of a recipe, e.g. recipes/videozoomer")
    parser.add_argument("--profile", choices=("laptop", "cluster"), help="the recipe's config; default: laptop with "
                        "the tiny model's engine, else cluster")  # fmt: skip
    parser.add_argument("--teacher", dest="model", required=required,
                        help="address of an OpenAI-compatible server (http://host:8000/v1), or folder of a "
                             "checkpoint")  # fmt: skip
    parser.add_argument("--teacher-name", dest="model_name", default="",
                        help="name of the model on the server, where it has several")  # fmt: skip
    parser.add_argument("--engine", choices=("auto", "chat", "vllm", "toy"), default="auto")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; the same command goes on there")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="only the first N")
    parser.add_argument("--temperature", type=float, help="default: the recipe's val_kwargs")
    parser.add_argument("--top-p", type=float, help="default: the recipe's val_kwargs")
    parser.add_argument("--seed", type=int, help="of sampling; a server gets it plus the number of the sample")
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="most tokens of a server's reply; default: "
                        "the recipe's max_turn_tokens")  # fmt: skip
    parser.add_argument("--timeout", type=float, default=ChatConfig.timeout, help="seconds for a reply (%(default)s)")
    parser.add_argument(
        "--concurrency", type=positive, default=16, metavar="N", help="episodes at a time (%(default)s)"
    )
    parser.add_argument("--api-key-env", default="OPENAI_API_KEY", help="variable that holds the server's key")
    parser.add_argument("--price-in", type=float, default=0.0, metavar="MONEY", help="of a million prompt tokens")
    parser.add_argument("--price-out", type=float, default=0.0, metavar="MONEY", help="of a million completion tokens")


def guarded(work: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Run a command; its exit status: what stops it from starting becomes a message and a 2."""
    from hydra.errors import HydraException

    from agentic_video.utils.devices import count_gpus
    from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV

    for name, value in {**COMMON_ENV, **({} if count_gpus() else LAPTOP_ENV)}.items():
        os.environ.setdefault(name, value)
    try:
        return work(arguments)
    except (SetupError, HydraException, ValueError) as error:  # a RowError is a ValueError
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130


@dataclass(frozen=True)
class Teacher:
    """A teacher with the system that it plays.

    Attributes:
        settings: Of the recipe's config.
        limits: Token budgets of an episode.
        spec: The model.
        prices: Of its tokens.
        seeded: Whether samples are told apart by their seed.
    """

    settings: Settings
    limits: TokenLimits
    spec: ModelSpec
    prices: Prices
    seeded: bool = False

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
            "system": {"class": type(self.system).__qualname__, **asdict(self.system)},  # type: ignore[call-overload]
            "limits": asdict(self.limits),
            "sampling": {
                "temperature": self.spec.temperature,
                "top_p": self.spec.top_p,
                "seed": self.spec.seed if self.seeded else None,
                "max_tokens": self.spec.chat.max_tokens,
            },
        }

    def cast(self, folder: Path, concurrency: int) -> EvalContext:
        """What the episodes of this process share; made where its event loop runs."""
        plan = Plan(
            folder=folder, system=self.system, model=self.spec, limits=self.limits,
            frame_store=self.settings.frame_store, retrieval=self.settings.retrieval, judge=self.settings.judge,
            concurrency=concurrency, provenance={},
        )  # fmt: skip
        return EvalContext(plan)

    def backends(self, cast: EvalContext, samples: int) -> list[Backend]:
        """Who speaks in each sample of a question: the same model, told apart by the seed where a server gets one."""
        if self.spec.engine != "chat" or not self.seeded:
            return [cast.backend] * samples
        from agentic_video.evaluation.backends.chat import ChatBackend

        chat = self.spec.chat
        return [
            ChatBackend(
                replace(self.spec, chat=replace(chat, fields={**chat.fields, "seed": self.spec.seed + number})),
                cast.backend.factor,
            )
            for number in range(samples)
        ]


def prepare(arguments: argparse.Namespace) -> Teacher:
    """The teacher that the options of :func:`add_arguments` name.

    Args:
        arguments: Also ``overrides``, a list of Hydra overrides.

    Raises:
        SetupError: Something is missing or doesn't exist.
        hydra.errors.HydraException: The recipe's config doesn't compose.
        ValueError: A key of the config is wrong.
    """
    from agentic_video.commands.eval import find_recipe, fit_images, model_spec
    from agentic_video.config.compose import compose_recipe
    from agentic_video.config.settings import limits_of, settings_of
    from agentic_video.utils.devices import count_gpus

    bad = [text for text in arguments.overrides if "=" not in text and not text.startswith("~")]
    if bad:
        raise SetupError(f"not an option and not a Hydra override (key=value): {bad[0]}")
    recipe = (arguments.recipe or find_recipe(arguments.system)).resolve()
    if not (recipe / "config").is_dir():
        raise SetupError(f"{recipe}: no recipe (a folder with config/laptop.yaml or config/cluster.yaml)")
    engine = choose_engine(arguments.model, arguments.engine, count_gpus(), "--teacher")
    profile = arguments.profile or ("laptop" if engine == "toy" else "cluster")
    config = compose_recipe(recipe, profile, arguments.overrides)
    settings, limits = settings_of(config), limits_of(config)
    name = arguments.model_name
    if engine == "chat" and not name:
        key = os.environ.get(arguments.api_key_env)
        name = served_model(arguments.model, key, option="--teacher", name_option="--teacher-name")
    filled = argparse.Namespace(**{**vars(arguments), "seed": arguments.seed or 0, "model_name": name})
    spec = fit_images(model_spec(filled, config, engine, arguments.model), settings.system.max_images)
    if engine == "chat":
        chat = replace(spec.chat, timeout=arguments.timeout, max_tokens=arguments.max_tokens or spec.chat.max_tokens)
        spec, limits = replace(spec, chat=chat), TokenLimits(UNLIMITED, UNLIMITED, chat.max_tokens or limits.turn)
    prices = Prices(arguments.price_in, arguments.price_out)
    return Teacher(settings, limits, spec, prices, seeded=arguments.seed is not None)


def critic_backend(url: str, name: str, arguments: argparse.Namespace) -> Backend:
    """The critic: a second model behind a server, which says the likeliest thing.

    Raises:
        SetupError: It isn't there, or is one of several.
    """
    from agentic_video.evaluation.backends.chat import ChatBackend

    key = os.environ.get(arguments.api_key_env)
    chat = ChatConfig(
        base_url=url, model=name or served_model(url, key, option="--critic", name_option="--critic-model"),
        api_key_env=arguments.api_key_env,
        timeout=arguments.timeout, concurrency=arguments.concurrency, temperature=0.0,
    )  # fmt: skip
    return ChatBackend(ModelSpec("chat", url, chat=chat), factor=28)


async def ask(
    backend: Backend, system: System, limits: TokenLimits, messages: Sequence[Message], view: EpisodeView
) -> tuple[str, Usage]:
    """One reply beside an episode, without what a reasoning model thought before it.

    Args:
        system: Whose stop texts don't count here: a reply may quote a call.
        view: The episode that it is about.

    Raises:
        EngineError: There was no reply.
    """
    policy = backend.policy(replace(system, stop=()), limits)  # type: ignore[type-var]
    if not await policy.begin(messages):
        raise EngineError("a question to the teacher doesn't fit the prompt's token budget")
    said = await policy.say(view)
    return spoken(said.text), usage_of(policy)


def spoken(text: str) -> str:
    """A reply without the thoughts before it."""
    return text.rpartition("</think>")[2].strip()


def read_object(reply: str) -> dict[str, Any] | None:
    """The one JSON object that a reply is, alone or in a code fence; None when it is anything else."""
    match = re.fullmatch(r"(?:```(?:json)?\s*)?(\{.*\})(?:\s*```)?", reply.strip(), re.DOTALL)
    try:
        found = json.loads(match[1]) if match else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def transcript(turns: Sequence[Turn], frame: str = "<frame {index} at {time:.2f} s>") -> str:
    """Turns as JSON for another model, which must not take what they say for instructions.

    Args:
        frame: How a frame is written.
    """
    shown = []
    for number, turn in enumerate(turns, start=1):
        parts = [
            frame.format(index=part.index, time=part.time) if isinstance(part, FrameRef) else part
            for part in turn.observation
        ]
        entry = {"turn": number, "said": turn.text[:MAX_TURN_CHARS], "was_shown": "".join(parts)[:MAX_TURN_CHARS]}
        shown.append(entry)
    return json.dumps(shown, indent=1)
