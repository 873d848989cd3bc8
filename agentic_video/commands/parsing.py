"""The command line: its commands, and the words of one of them read."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import NoReturn

COMMANDS: Mapping[str, str] = {
    "run": "train one system: GRPO, SFT, KTO or RFT",
    "reproduce": "run all stages of a paper, from its data to its table",
    "install": "install the engine for this machine into this environment, pinned",
    "doctor": "say what this machine and environment have, and what is missing",
    "plan": "say what a run needs, whether it fits, and which keys to change",
    "summary": "write the summary of a run's folder again",
    "eval": "play a benchmark with a system and a model, and report",
    "compare": "compare evaluations of the same questions",
    "view": "look at recorded episodes in a browser",
    "convert": "make rows of a published data set",
    "distill": "let a teacher play a system's episodes, and keep what verifies for SFT",
    "reflect": "let a teacher correct failed episodes, and keep what verifies for SFT",
    "classify": "sort questions by what they need, and draw SFT and RL sets by it",
    "enhance": "have a teacher write questions about new videos, like those at which an agent fails",
    "mine": "collect the questions at which a run's agent fails",
    "filter": "keep a run's episodes that are right and looked at the right place, for SFT",
    "preferences": "label trajectories desirable or undesirable, for KTO",
    "templates": "say which reasoning templates trajectories follow",
    "lengths": "say how long trajectories are, in tokens and in calls",
}
"""The subcommands, each with a line of help. Each is a module of ``agentic_video.commands`` with ``TAKES_OVERRIDES``
(whether words that are no options are Hydra overrides), ``add_arguments(parser)`` and ``run(arguments) -> int``; only
the one that is asked for is imported."""


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
    asked = next((word for word in words if not word.startswith("-")), "")
    module: ModuleType | None = import_module(f"agentic_video.commands.{asked}") if asked in COMMANDS else None
    parsers = {name: _add(subparsers, name, module if name == asked else None) for name in COMMANDS}
    known, others = parser.parse_known_args(words)
    assert module is not None  # any other word has ended here
    own = parsers[asked]
    unknown = others if not module.TAKES_OVERRIDES else [word for word in others if word.startswith("-")]
    if unknown:
        close = get_close_matches(unknown[0].partition("=")[0], own.options(), n=1)
        own.error(f"not an option: {unknown[0]}" + (f"; did you mean {close[0]}?" if close else ""))
    if module.TAKES_OVERRIDES:
        known.overrides = others
    return module.run, known


def _add(subparsers: "argparse._SubParsersAction[Parser]", name: str, module: ModuleType | None) -> Parser:
    """Add a subcommand's parser; one whose module isn't given has no options and stands in the list only."""
    about = (module.__doc__ or "").replace("``", "") if module else None
    parser = subparsers.add_parser(
        name, help=COMMANDS[name], description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if module:
        module.add_arguments(parser)
    return parser
