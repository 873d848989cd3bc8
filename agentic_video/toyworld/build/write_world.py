"""Writes a world in another process: ``python -m agentic_video.toyworld.build.write_world``.

It doesn't import torch: a spawned process imports all that its parent did, which takes longer than writing its share
of the videos."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from agentic_video.config.typed import dataclass_from
from agentic_video.toyworld.questions import World, build_world
from agentic_video.toyworld.world import WorldRecipe
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.process import end_with_parent

NICENESS = 4
"""The models are waited for longer than the world. Not more: next to other programs it would get no turn."""

REFUSED = 2
"""Exit status after a one-line error."""


def write_world(folder: Path, *, train: int, heldout: int, seed: int, recipe: WorldRecipe) -> World:
    """Run :func:`agentic_video.toyworld.questions.build_world` in another process."""
    asked = {"train": train, "heldout": heldout, "seed": seed, "recipe": asdict(recipe)}
    command = [sys.executable, "-m", "agentic_video.toyworld.build.write_world", str(folder), json.dumps(asked)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    said = done.stderr.strip().splitlines()
    if done.returncode != REFUSED:  # a warning, or an unexpected traceback
        sys.stderr.write(done.stderr)
    if done.returncode:
        why = said[-1] if said else f"status {done.returncode}"
        raise SetupError(f"the world's videos could not be written: {why}")
    return World.of(folder)


def main() -> None:
    """Write the world: the folder, and the rest as JSON."""
    end_with_parent()
    os.nice(NICENESS)
    folder, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
    recipe = dataclass_from(WorldRecipe, asked.pop("recipe"), "recipe")
    try:
        build_world(folder, **asked, recipe=recipe)
    except (OSError, ValueError) as error:  # a full disk, say
        print(one_line(error), file=sys.stderr)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
