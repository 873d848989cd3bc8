"""Options shared by the commands that ask models for training data: of the job, its servers, and a teacher."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import NonNegativeInt, PositiveInt

from agentic_video.commands.engine import TOY, EngineOptions, RecipeOptions, choose_engine
from agentic_video.commands.guard import guarded
from agentic_video.evaluation.model import ModelOptions
from agentic_video.rollout.chat_policy import ChatConfig
from agentic_video.synthesis.asking import ServerOptions
from agentic_video.synthesis.jobs import JobOptions, JobReport, Prices
from agentic_video.synthesis.teachers import TeacherOptions
from agentic_video.utils.host import count_gpus
from agentic_video.utils.option_types import Amount, ModelName, OutputFolder, Overrides, PositiveAmount


@dataclass(frozen=True, kw_only=True)
class JobArguments:
    """A job that asks servers."""

    out: OutputFolder
    """folder of the results; the same command resumes there"""
    limit: PositiveInt | None = None
    """only the first N rows, failures or videos (default: all)"""
    timeout: PositiveAmount = ChatConfig.timeout
    """most seconds for a server's reply"""
    concurrency: PositiveInt = 16
    """episodes, or videos, at a time"""
    api_key_env: str = "OPENAI_API_KEY"
    """environment variable that holds the server's key"""
    price_in: Amount = 0.0
    """price of a million prompt tokens"""
    price_out: Amount = 0.0
    """price of a million completion tokens"""

    @property
    def job(self) -> JobOptions:
        """The job itself."""
        return JobOptions(self.out, self.limit or 0, self.concurrency, Prices(self.price_in, self.price_out))

    def server(self, url: str, name: str, temperature: float = 0.0, max_tokens: int | None = None) -> ServerOptions:
        """A further server of the job; ``max_tokens`` 0 leaves the length to the server."""
        return ServerOptions(
            url=url,
            name=name,
            api_key_env=self.api_key_env,
            timeout=self.timeout,
            concurrency=self.concurrency,
            temperature=temperature,
            max_tokens=ServerOptions.max_tokens if max_tokens is None else max_tokens,
        )


@dataclass(frozen=True, kw_only=True)
class TeacherArguments(JobArguments, EngineOptions, RecipeOptions):
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

    def player(self, model: str, name: str, option: str = "--teacher", system: str = "") -> TeacherOptions:
        """A model that plays episodes, of the system that the command names, else of ``system``.

        ``option`` is the name of the option that names the model, for messages.
        """
        engine = choose_engine(model, self.engine, count_gpus(), option)
        return TeacherOptions(
            recipe=self.recipe_folder(system),
            profile=self.profile or ("laptop" if engine == TOY else "cluster"),
            model=ModelOptions(
                model=model,
                engine=engine,
                model_name=name,
                processor=self.processor,
                temperature=self.temperature,
                top_p=self.top_p,
                seed=self.seed or 0,
                concurrency=self.concurrency,
                api_key_env=self.api_key_env,
            ),
            timeout=self.timeout,
            max_tokens=self.max_tokens,
            seeded=self.seed is not None,
            overrides=self.overrides,
            option=option,
        )


def run_job(job: Callable[[], JobReport]) -> int:
    """Run a job and report its end; exit status 1 when something is missing, 2 when nothing could start."""

    def work() -> int:
        finished = job()
        print(finished.text)
        if finished.warning:
            print(finished.warning, file=sys.stderr)
        return int(not finished.complete)

    return guarded(work)
