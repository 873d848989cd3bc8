"""The command line: its commands, and the words of one of them read."""

import argparse
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import NoReturn

COMMANDS = (
    "run",
    "reproduce",
    "install",
    "doctor",
    "plan",
    "summary",
    "eval",
    "compare",
    "view",
    "convert",
    "distill",
    "reflect",
    "classify",
    "enhance",
    "mine",
    "filter",
    "preferences",
    "templates",
    "lengths",
)
"""The subcommands. Each is a module of ``agentic_video.commands`` with ``HELP`` (one line), ``TAKES_OVERRIDES``
(whether words that are no options are Hydra overrides), ``add_arguments(parser)`` and ``run(arguments) -> int``."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        self.exit(2, f"{self.prog}: error: {message} (all options: {self.prog} --help)\n")

    def options(self) -> list[str]:
        """All options, as they are written."""
        return [option for action in self._actions for option in action.option_strings]


def parsed(
    words: Sequence[str], about: str | None = None
) -> tuple[Callable[[argparse.Namespace], int], argparse.Namespace]:
    """Read the words of a command.

    Args:
        words: After the program's name.
        about: What the program does, for its help.

    Returns:
        What runs the command, and its arguments.

    Raises:
        SystemExit: They are wrong, or ask for help; what is to be said of it has been printed.
    """
    parser = Parser(prog="agentic-video", description=about)
    parser.add_argument("--version", action="store_true", help="show the version and stop")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    modules = {name: import_module(f"agentic_video.commands.{name}") for name in _needed(words)}
    parsers = {name: _add(subparsers, name, modules[name]) for name in COMMANDS if name in modules}
    known, others = parser.parse_known_args(words)
    module, own = modules[known.command], parsers[known.command]
    unknown = others if not module.TAKES_OVERRIDES else [word for word in others if word.startswith("-")]
    if unknown:
        close = get_close_matches(unknown[0].partition("=")[0], own.options(), n=1)
        own.error(f"not an option: {unknown[0]}" + (f"; did you mean {close[0]}?" if close else ""))
    if module.TAKES_OVERRIDES:
        known.overrides = others
    return module.run, known


def _needed(words: Sequence[str]) -> Sequence[str]:
    """The command that is asked for, so that no other is imported; all where the list of them is."""
    return words[:1] if words and words[0] in COMMANDS else COMMANDS


def _add(subparsers: "argparse._SubParsersAction[Parser]", name: str, module: ModuleType) -> Parser:
    description = (module.__doc__ or "").replace("``", "")
    parser = subparsers.add_parser(
        name, help=module.HELP, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.add_arguments(parser)
    return parser
