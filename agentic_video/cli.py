"""Train and evaluate agents that watch long videos with tools."""

import sys
from collections.abc import Sequence
from importlib.metadata import version

from agentic_video.commands.guard import plainly
from agentic_video.commands.parsing import parsed
from agentic_video.utils.environment import DISTRIBUTION, missing_requirements
from agentic_video.utils.errors import SetupError
from agentic_video.utils.surroundings import use_utf8


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, of this process's own arguments by default; returns the exit status."""
    if arguments is None:
        use_utf8()
    words = list(sys.argv[1:] if arguments is None else arguments)
    return plainly(lambda: _run(words))


def _run(words: list[str]) -> int:
    if words == ["--version"]:
        print(f"agentic-video {version(DISTRIBUTION)}")
        return 0
    try:
        run, options = parsed(words, __doc__)
        return run(options)
    except ModuleNotFoundError as error:
        if not (lacking := missing_requirements()):
            raise
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise SetupError(
            f"{lacking[0]}{more} of the package's requirements aren't installed in this environment: "
            "agentic-video install cpu, or gpu with NVIDIA GPUs"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
