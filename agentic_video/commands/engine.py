"""Options about what is played and what runs the model, with the tiny model's engine among the choices.

The libraries know ``chat``, ``vllm`` and dotted paths of classes; that there is a toy world is known here.
"""

import argparse
from pathlib import Path

from agentic_video.commands.numbers import amount, probability
from agentic_video.commands.paths import path
from agentic_video.systems.registry import SYSTEMS
from agentic_video.utils.errors import SetupError

TOY = "agentic_video.toyworld.backend.ToyBackend"
"""What ``toy`` stands for."""
SCRIPTED = "agentic_video.toyworld.teacher.ScriptedTeacher"
"""The teacher of a machine that has none."""
SMALL_BYTES = 64 << 20
"""Weights up to this size run on the tiny model's own engine where there is no GPU."""
NAMES = ("auto", "chat", "vllm", "vllm-server", "toy")


def add_recipe(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """Add the options ``--system`` or ``--recipe``, and ``--profile``.

    Args:
        parser: Of a command that plays a system.
        required: Whether one of the first two must be given.
    """
    example = next(iter(SYSTEMS))
    which = parser.add_mutually_exclusive_group(required=required)
    which.add_argument("--system", metavar="NAME", help=f"name of a recipe in ./recipes, e.g. {example}")
    which.add_argument("--recipe", type=path, metavar="FOLDER", help=f"folder of a recipe, e.g. recipes/{example}")
    parser.add_argument(
        "--profile",
        choices=("laptop", "cluster"),
        help="which of the recipe's configs (default: laptop with the tiny model's engine, else cluster)",
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the options ``--engine`` and ``--processor``."""
    parser.add_argument(
        "--engine",
        type=_name,
        default="auto",
        metavar="NAME",
        help="what runs the model: chat (a server), vllm, vllm-server (vLLM's server, by token ids), toy (the tiny "
        "model's own), auto (what fits the model), or the dotted path of a class of your own, see "
        "agentic_video.evaluation.backends.base (default: %(default)s)",
    )
    parser.add_argument(
        "--processor",
        default="",
        metavar="MODEL",
        help="with a server, whose processor and tokenizer the model has: vllm-server needs it (default: what the "
        "server says that it loaded), and chat reads in it how the chat template begins replies",
    )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add the options ``--temperature`` and ``--top-p``."""
    default = "(default: the recipe's val_kwargs)"
    parser.add_argument("--temperature", type=amount, metavar="X", help=f"of sampling; 0: the likeliest {default}")
    parser.add_argument("--top-p", type=probability, metavar="X", help=f"of sampling {default}")


def add_key(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--api-key-env``."""
    parser.add_argument(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="VARIABLE",
        help="environment variable that holds the server's key (default: %(default)s)",
    )


def _name(text: str) -> str:
    if text not in NAMES and "." not in text:
        raise argparse.ArgumentTypeError(f"invalid choice: {text!r} (choose from {', '.join(NAMES)})")
    return text


def choose_engine(model: str, asked: str, gpus: int, option: str = "--model") -> str:
    """A server for an address; the tiny model's engine for a tiny checkpoint without a GPU; else vLLM.

    Args:
        model: Folder of a checkpoint, its name on a hub, or the address of a server.
        asked: As the option says it.
        gpus: How many there are.
        option: How messages call the option that names the model.

    Returns:
        ``chat``, ``vllm``, ``vllm-server``, or the dotted path of a class.

    Raises:
        SetupError: The model isn't there, or isn't what was asked for.
    """
    from agentic_video.evaluation.model import engine_of, require_checkpoint

    if asked in ("toy", TOY):
        require_checkpoint(model, asked, option)
        if not Path(model).is_dir():
            raise SetupError(f"{option} {model}: no such folder; --engine toy needs the folder of a checkpoint")
        return TOY
    engine = engine_of(model, asked, option)
    return TOY if asked == "auto" and engine == "vllm" and not gpus and _is_small(Path(model)) else engine


def _is_small(folder: Path) -> bool:
    """Whether a folder's weights are the tiny model's, by their size."""
    return folder.is_dir() and sum(file.stat().st_size for file in folder.glob("*.safetensors")) <= SMALL_BYTES
