"""What the commands share that ask models for training data: options of the job, of its servers, and of a teacher."""

import argparse
import sys
from collections.abc import Callable

from agentic_video.commands.engine import TOY, add_engine, add_key, add_recipe, add_sampling, choose_engine
from agentic_video.commands.guard import guarded
from agentic_video.commands.numbers import amount, natural, positive, seconds
from agentic_video.commands.paths import folder_to_write
from agentic_video.commands.paths import model as model_name
from agentic_video.config.compose import find_recipe
from agentic_video.evaluation.model import ModelOptions
from agentic_video.rollout.chat_policy import ChatConfig
from agentic_video.synthesis.asking import ServerOptions
from agentic_video.synthesis.jobs import Finished, JobOptions, Prices
from agentic_video.synthesis.teachers import TeacherOptions
from agentic_video.utils.devices import count_gpus


def add_job(parser: argparse.ArgumentParser, items: str, limited: str) -> None:
    """Add the options of a job that asks servers.

    Args:
        parser: Of the command.
        items: What is done some at a time.
        limited: What ``--limit`` counts.
    """
    parser.add_argument(
        "--out",
        type=folder_to_write,
        required=True,
        metavar="FOLDER",
        help="folder of the results; the same command goes on there",
    )
    parser.add_argument("--limit", type=positive, metavar="N", help=f"only the first N {limited} (default: all)")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=ChatConfig.timeout,
        metavar="SECONDS",
        help="most seconds for a server's reply (default: %(default)g)",
    )
    parser.add_argument(
        "--concurrency", type=positive, default=16, metavar="N", help=f"{items} at a time (default: %(default)s)"
    )
    add_key(parser)
    parser.add_argument(
        "--price-in",
        type=amount,
        default=0.0,
        metavar="MONEY",
        help="of a million prompt tokens (default: %(default)g)",
    )
    parser.add_argument(
        "--price-out",
        type=amount,
        default=0.0,
        metavar="MONEY",
        help="of a million completion tokens (default: %(default)g)",
    )


def add_teacher(
    parser: argparse.ArgumentParser, required: bool = True, limited: str = "rows", without: str = ""
) -> None:
    """Add the options of a teacher that plays episodes, and of its job.

    Args:
        parser: Of the command.
        required: Whether a system and a teacher must be named.
        limited: What ``--limit`` counts.
        without: Who plays where no teacher is named; empty where one must be.
    """
    add_recipe(parser, required)
    parser.add_argument(
        "--teacher",
        type=model_name,
        required=required and not without,
        metavar="MODEL",
        help="address of an OpenAI-compatible server (http://host:8000/v1), or folder of a checkpoint"
        + (f" (default: {without})" if without else ""),
    )
    parser.add_argument(
        "--teacher-name", default="", metavar="NAME", help="name of the model on the server, where it has several"
    )
    add_engine(parser)
    add_sampling(parser)
    parser.add_argument(
        "--seed",
        type=natural,
        metavar="N",
        help="of sampling; a server gets it plus the number of the sample (default: it gets none)",
    )
    parser.add_argument(
        "--max-tokens",
        type=positive,
        metavar="N",
        help="most tokens of a server's reply (default: the recipe's max_turn_tokens)",
    )
    add_job(parser, "episodes", limited)


def job_options(arguments: argparse.Namespace) -> JobOptions:
    """The job that the options of :func:`add_job` describe."""
    prices = Prices(arguments.price_in, arguments.price_out)
    return JobOptions(arguments.out, arguments.limit or 0, arguments.concurrency, prices)


def server_options(
    arguments: argparse.Namespace,
    url: str,
    name: str,
    temperature: float = 0.0,
    max_tokens: int = ServerOptions.max_tokens,
) -> ServerOptions:
    """A server beside the job's episodes, reached as the options of :func:`add_job` say.

    Args:
        arguments: Of the command.
        url: Address of the server.
        name: Name of the model there; empty where the server has one only.
        temperature: Of sampling.
        max_tokens: Most tokens of a reply; 0 leaves it to the server.
    """
    return ServerOptions(
        url=url,
        name=name,
        api_key_env=arguments.api_key_env,
        timeout=arguments.timeout,
        concurrency=arguments.concurrency,
        temperature=temperature,
        max_tokens=max_tokens,
    )


def teacher_options(
    arguments: argparse.Namespace, model: str, name: str, option: str = "--teacher", system: str = ""
) -> TeacherOptions:
    """A model that plays episodes as the options of :func:`add_teacher` say.

    Args:
        arguments: Of the command, with ``overrides``, a list of Hydra overrides.
        model: Address of a server, or folder of a checkpoint.
        name: Name of the model on the server.
        option: The option that names the model.
        system: What is played where the command names nothing.

    Raises:
        SetupError: Something doesn't exist, or makes no sense.
    """
    engine = choose_engine(model, arguments.engine, count_gpus(), option)
    return TeacherOptions(
        recipe=(arguments.recipe or find_recipe(arguments.system or system)).resolve(),
        profile=arguments.profile or ("laptop" if engine == TOY else "cluster"),
        model=ModelOptions(
            model=model,
            engine=engine,
            model_name=name,
            processor=arguments.processor,
            temperature=arguments.temperature,
            top_p=arguments.top_p,
            seed=arguments.seed or 0,
            concurrency=arguments.concurrency,
            api_key_env=arguments.api_key_env,
        ),
        timeout=arguments.timeout,
        max_tokens=arguments.max_tokens,
        seeded=arguments.seed is not None,
        overrides=tuple(arguments.overrides),
        option=option,
    )


def run_job(job: Callable[[argparse.Namespace], Finished], arguments: argparse.Namespace) -> int:
    """Do a job, and say how it ended.

    Args:
        job: Makes the options of the arguments, and does it.
        arguments: Of the command.

    Returns:
        Exit status: 0 when all was done, 1 when something is missing, 2 when nothing could start, 130 when it was
        interrupted.
    """

    def work(arguments: argparse.Namespace) -> int:
        finished = job(arguments)
        print(finished.text)
        if finished.warning:
            print(finished.warning, file=sys.stderr)
        return int(not finished.complete)

    return guarded(work, arguments)
