"""Train and evaluate agents that watch long videos with tools."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

COMMANDS = (
    "run",
    "install",
    "doctor",
    "summary",
    "eval",
    "view",
    "convert",
    "distill",
    "reflect",
    "classify",
    "enhance",
    "mine",
    "preferences",
    "templates",
)
"""The subcommands. Each is a module of ``agentic_video.commands`` with ``HELP`` (one line), ``TAKES_OVERRIDES``
(whether words that are no options are Hydra overrides), ``add_arguments(parser)`` and ``run(arguments) -> int``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand.

    Args:
        arguments: Words after the program's name; None takes this process's own.

    Returns:
        The exit status.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="agentic-video", description=__doc__)
    subparsers = parser.add_subparsers(dest="command", required=True)
    modules = {name: import_module(f"agentic_video.commands.{name}") for name in _needed(words)}
    for name in COMMANDS:
        if name in modules:
            _add(subparsers, name, modules[name])
        else:
            subparsers.add_parser(name)
    known, overrides = parser.parse_known_args(words)
    module = modules[known.command]
    if module.TAKES_OVERRIDES:
        known.overrides = overrides
    elif overrides:
        parser.error(f"unrecognized arguments: {' '.join(overrides)}")
    return int(module.run(known))


def _needed(words: Sequence[str]) -> Sequence[str]:
    """The command that is asked for, so that no other is imported; all where the list of them is."""
    return words[:1] if words and words[0] in COMMANDS else COMMANDS


def _add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, module: ModuleType) -> None:
    parser = subparsers.add_parser(
        name, help=module.HELP, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.add_arguments(parser)


if __name__ == "__main__":
    sys.exit(main())
