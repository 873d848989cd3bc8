"""Options of the commands that run models: recipe, engine and sampling; the choice of an engine."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator

from agentic_video.utils.errors import SetupError
from agentic_video.utils.host import count_gpus
from agentic_video.utils.option_types import Amount, Probability

if TYPE_CHECKING:
    from agentic_video.evaluation.model import ModelOptions

TOY = "agentic_video.toyworld.backend.ToyBackend"
"""The class behind ``--engine toy``."""
SCRIPTED = "agentic_video.toyworld.teacher.ScriptedTeacher"
"""Teacher of a machine that has none."""
SMALL_BYTES = 64 << 20
"""Weights up to this size run on the toy engine where there is no GPU."""
NAMES = ("auto", "chat", "vllm", "vllm-server", "toy")


def _engine(text: str) -> str:
    if text not in NAMES and "." not in text:
        raise ValueError(f"invalid choice (choose from {', '.join(NAMES)}, or name a class by its dotted path)")
    return text


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """The recipe whose system plays."""

    system: str = ""
    """name of a recipe in ./recipes"""
    recipe: Path | None = None
    """folder of a recipe, instead of --system"""
    profile: Literal["laptop", "cluster"] | None = None
    """which of the recipe's configs (default: laptop with the tiny model's engine, else cluster)"""

    def recipe_folder(self, default: str = "") -> Path:
        """Absolute folder of the recipe, of the default one where the command names none."""
        from agentic_video.config.compose import find_recipe

        if self.system and self.recipe:
            raise SetupError("--system and --recipe both name a recipe: leave one of them out", key="--system")
        if not (self.system or self.recipe or default):
            raise SetupError("name what plays: --system NAME or --recipe FOLDER", key="--system")
        return (self.recipe or find_recipe(self.system or default)).resolve()

    def profile_of(self, engine: str) -> Literal["laptop", "cluster"]:
        """Name of the recipe's config that an engine plays by."""
        return self.profile or ("laptop" if engine == TOY else "cluster")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Engine and sampling of a model."""

    engine: Annotated[str, AfterValidator(_engine)] = "auto"
    """what runs the model: chat (a server), vllm, vllm-server (vLLM's server, by token ids), toy (the tiny model's
    own), auto (what fits the model), or the dotted path of a custom class, see agentic_video.evaluation.backends"""
    processor: str = ""
    """with a server, whose processor and tokenizer the model has: vllm-server needs it (default: what the server says
    that it loaded), and chat reads in it how the chat template begins replies"""
    temperature: Amount | None = None
    """of sampling; 0: greedy (default: the recipe's val_kwargs)"""
    top_p: Probability | None = None
    """of sampling (default: the recipe's val_kwargs)"""
    api_key_env: str = "OPENAI_API_KEY"
    """environment variable that holds the server's key"""

    def model_options(
        self, model: str, name: str = "", *, seed: int, concurrency: int, option: str = "--model"
    ) -> "ModelOptions":
        """A model with the engine that suits it; ``option`` names it, for messages."""
        from agentic_video.evaluation.model import ModelOptions

        return ModelOptions(
            model=model,
            engine=choose_engine(model, self.engine, count_gpus(), option),
            model_name=name,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=seed,
            concurrency=concurrency,
            api_key_env=self.api_key_env,
            processor=self.processor,
        )


def choose_engine(model: str, requested: str, gpus: int, option: str = "--model") -> str:
    """Return ``chat``, ``vllm``, ``vllm-server``, or the dotted path of a class.

    ``auto`` takes a server for an address, the toy engine for a tiny checkpoint without a GPU, else vLLM.
    """
    from agentic_video.evaluation.model import engine_of, require_checkpoint

    if requested in ("toy", TOY):
        require_checkpoint(model, requested, option)
        if not Path(model).is_dir():
            raise SetupError(
                f"{option} {model}: no such folder; --engine toy needs the folder of a checkpoint", key=option
            )
        return TOY
    engine = engine_of(model, requested, option)
    return TOY if requested == "auto" and engine == "vllm" and not gpus and _is_small(Path(model)) else engine


def _is_small(folder: Path) -> bool:
    return folder.is_dir() and sum(file.stat().st_size for file in folder.glob("*.safetensors")) <= SMALL_BYTES
