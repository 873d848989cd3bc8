"""Writes a world as a program of its own, beside what else is built: ``python -m agentic_video.toyworld.write_world``.

It imports nothing of torch: a process that starts another way imports all that its parent did, which takes longer than
writing its share of the videos.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from agentic_video.config.typed import dataclass_from
from agentic_video.toyworld.questions import World, build_world, end_with_parent
from agentic_video.toyworld.world import WorldRecipe

NICENESS = 4
"""What is trained meanwhile is waited for longer. Not more: beside other programs it would get no turn at all."""


def write_world(folder: Path, *, train: int, heldout: int, seed: int, recipe: WorldRecipe) -> World:
    """See :func:`agentic_video.toyworld.questions.build_world`, which runs in another process.

    Raises:
        RuntimeError: That process failed; it said why.
    """
    asked = {"train": train, "heldout": heldout, "seed": seed, "recipe": asdict(recipe)}
    command = [sys.executable, "-m", "agentic_video.toyworld.write_world", str(folder), json.dumps(asked)]
    if status := subprocess.run(command).returncode:
        raise RuntimeError(f"the world's videos could not be written (status {status})")
    return World.of(folder)


def main() -> None:
    """Command line: the folder, and the rest as JSON."""
    end_with_parent()
    os.nice(NICENESS)
    folder, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
    recipe = dataclass_from(WorldRecipe, asked.pop("recipe"), "recipe")
    build_world(folder, **asked, recipe=recipe)


if __name__ == "__main__":
    main()
