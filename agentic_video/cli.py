"""The ``agentic-video`` command."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

MAKING = {
    "distill": "let a teacher play a system's episodes, and keep what verifies for SFT",
    "reflect": "let a teacher correct failed episodes, and keep what verifies for SFT",
    "classify": "sort questions by VideoBrain's classes, and draw its SFT and RL sets",
    "enhance": "have a teacher write questions about new videos, like those at which an agent fails",
    "mine": "collect the questions at which a run's agent fails",
    "preferences": "label trajectories desirable or undesirable, for KTO",
    "templates": "say which of FrameThinker's reasoning templates trajectories follow",
}
"""Commands that make and look at training data, each a module of ``agentic_video.synthesis``."""
MAKING_WITH_OVERRIDES = ("distill", "reflect", "classify", "preferences")
"""Those among them that take Hydra overrides of a recipe's config."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; its exit status."""
    parser = argparse.ArgumentParser(prog="agentic-video", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="say what this machine and environment have, and what is missing")
    summary = commands.add_parser("summary", help="write the summary of a run's folder again")
    summary.add_argument("folder", help="e.g. outputs/videozoomer-laptop/run-001")
    evaluation = commands.add_parser("eval", help="play a benchmark with a system and a model, and report")
    from agentic_video.commands import eval as evaluate

    evaluate.add_arguments(evaluation)
    viewing = commands.add_parser("view", help="look at recorded episodes in a browser")
    from agentic_video.commands import view as view

    view.add_arguments(viewing)
    converting = commands.add_parser("convert", help="make rows of a published data set")
    from agentic_video.commands import convert as conversion

    conversion.add_arguments(converting)
    making = {name: commands.add_parser(name, help=text) for name, text in MAKING.items()}
    asked = next(iter(sys.argv[1:] if arguments is None else arguments), "")
    if asked in MAKING:
        # Only the command that runs is imported.
        module = import_module(f"agentic_video.synthesis.{asked}")
        making[asked].description = module.__doc__
        making[asked].formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(making[asked])
    known, overrides = parser.parse_known_args(arguments)
    if known.command == "eval":
        known.overrides = overrides
        return evaluate.run(known)
    if known.command in MAKING_WITH_OVERRIDES:
        known.overrides = overrides
        return int(module.run(known))
    if overrides:
        parser.error(f"unrecognized arguments: {' '.join(overrides)}")
    if known.command in MAKING:
        return int(module.run(known))
    if known.command == "convert":
        return conversion.run(known)
    if known.command == "view":
        return view.run(known)
    if known.command == "doctor":
        from agentic_video.commands.doctor import report

        return report()
    from pathlib import Path

    from agentic_video.report.summary import write_summary

    print(write_summary(Path(known.folder).resolve()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
