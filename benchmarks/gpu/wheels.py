"""Wheels for a machine without a network: filled where there is one, carried over, installed there.

    python benchmarks/gpu/wheels.py download wheels                  # where there is a network
    python benchmarks/gpu/wheels.py split wheels batches --megabytes 60
    python benchmarks/gpu/wheels.py join batches wheels              # on the other machine
    python benchmarks/gpu/wheels.py install wheels

Both machines need the same version of Python, and Linux on x86-64. What is downloaded is what ``agentic-video install
gpu`` would install, and the package itself. flash-attn isn't: it has no wheel, and is built on the machine that has
nvcc (``--flash-attn`` takes its source along). Without it the cells use torch's own attention.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from agentic_video.utils.errors import SetupError  # noqa: E402
from agentic_video.utils.workdir import write_whole  # noqa: E402
from benchmarks.gpu.machine import run_script  # noqa: E402

MANIFEST = "wheels.json"
LATE = "flash-attn"
NO_NVCC = {"FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE"}
"""pip asks flash-attn's build script for its name before it keeps the source; this lets the script do without nvcc."""
CHUNK = 1 << 20


def normal(name: str) -> str:
    """A distribution's name as pip compares it."""
    return name.lower().replace("_", "-").replace(".", "-")


def pins(kind: str, python: str, leave_out: Iterable[str], have: Path | None) -> list[str]:
    """What has to be downloaded, each ``name==version``.

    Args:
        kind: ``gpu`` or ``cpu``.
        python: Version of Python, e.g. ``3.11.7``.
        leave_out: Names that aren't wanted.
        have: What ``pip freeze`` says on the other machine; equal versions aren't downloaded.

    Raises:
        SetupError: A name that is to be left out isn't in the list, or the file can't be read.
    """
    from packaging.requirements import Requirement

    lines = (REPOSITORY / "packaging" / f"requirements-{kind}.txt").read_text(encoding="utf-8").splitlines()
    environment = {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python}
    wanted = {}
    for line in filter(None, map(str.strip, lines)):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            wanted[normal(requirement.name)] = f"{requirement.name}{requirement.specifier}"
    unwanted = {normal(name) for name in leave_out}
    if unknown := sorted(unwanted - set(wanted)):
        raise SetupError(f"--leave-out {unknown[0]}: requirements-{kind}.txt has no such package")
    installed: set[str] = set()
    if have is not None:
        if not have.is_file():
            raise SetupError(f"--have {have}: no such file; it is what `pip freeze` says on the other machine")
        # A build's own suffix (torch==2.11.0+cu130) doesn't make it another version.
        lines = have.read_text(encoding="utf-8").splitlines()
        installed = {line.strip().partition("+")[0].lower().replace("_", "-") for line in lines}
    unwanted.add(LATE)
    return [
        pin for name, pin in wanted.items() if name not in unwanted and pin.lower().replace("_", "-") not in installed
    ]


def download_commands(folder: Path, wanted: Sequence[str], flash_attention: bool) -> list[list[str]]:
    """The commands that fill a folder: the lists are whole, so nothing is resolved.

    A few packages have no wheels on PyPI; pip builds theirs, which hold Python only.
    """
    pip = [sys.executable, "-m", "pip"]
    commands = [[*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(REPOSITORY), *wanted]]
    if flash_attention:
        pin = (REPOSITORY / "packaging" / f"requirements-{LATE}.txt").read_text(encoding="utf-8").strip()
        more = ["--no-binary=:all:", "--no-build-isolation"]
        commands.append([*pip, "download", "--no-deps", *more, "--dest", str(folder), pin])
    return commands


def digest(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def packages_in(folder: Path) -> list[Path]:
    """Wheels and archives of a folder, by name."""
    found = (
        [one for one in sorted(folder.iterdir()) if one.name.endswith((".whl", ".tar.gz"))] if folder.is_dir() else []
    )
    if not found:
        raise SetupError(f"{folder}: no wheels there")
    return found


def split(folder: Path, target: Path, megabytes: float) -> int:
    """Share the wheels of a folder out among folders of a limited size; those larger than that are cut.

    Args:
        folder: With wheels.
        target: Gets ``001``, ``002`` ...; each has the list of all wheels with their checksums, so that any of them
            says what is still missing.
        megabytes: Most of a folder, its list included (1 MB is a million bytes).

    Returns:
        Number of folders.

    Raises:
        SetupError: There are no wheels, or the target isn't empty.
    """
    files = packages_in(folder)
    if target.is_dir() and any(target.iterdir()):
        raise SetupError(f"{target}: not empty; name another folder")
    listed = {one.name: {"bytes": one.stat().st_size, "sha256": digest(one)} for one in files}
    text = json.dumps(listed, indent=1)
    room = int(megabytes * 1e6) - len(text.encode())
    if room < CHUNK:
        raise SetupError(f"--megabytes {megabytes:g}: too small; a folder holds its list and 1 MB at least")
    number, left = 0, 0
    for file in files:
        size, start = file.stat().st_size, 0
        with file.open("rb") as source:
            while start < size:
                if not left or (left < size - start and left < CHUNK):
                    number, left = number + 1, room
                    write_whole(target / f"{number:03d}" / MANIFEST, [text])
                taken = min(left, size - start)
                # A part's name says where in the wheel it belongs.
                name = file.name if taken == size else f"{file.name}.at-{start:012d}"
                with (target / f"{number:03d}" / name).open("wb") as part:
                    copy(source, part, taken)
                start, left = start + taken, left - taken
    return number


def copy(source: Any, target: Any, size: int) -> None:
    """Copy so many bytes from one open file to another."""
    while size:
        block = source.read(min(CHUNK, size))
        if not block:
            raise SetupError(f"{source.name}: shorter than it was")
        target.write(block)
        size -= len(block)


def join(batches: Path, folder: Path) -> list[str]:
    """Put together what :func:`split` cut, as far as it has arrived; can be called after each arrival.

    Args:
        batches: Folder of the folders; or one of them.
        folder: Gets the wheels.

    Returns:
        Names of the wheels that aren't whole yet.

    Raises:
        SetupError: There is no list, or a wheel is damaged; the message names it.
    """
    lists = sorted(batches.rglob(MANIFEST))
    if not lists:
        raise SetupError(f"{batches}: no {MANIFEST} in it")
    listed = json.loads(lists[0].read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    missing = []
    for name, facts in listed.items():
        done = folder / name
        if done.is_file() and done.stat().st_size == facts["bytes"]:
            continue
        parts = sorted(batches.rglob(f"{name}.at-*"), key=lambda one: one.name) or sorted(batches.rglob(name))
        if sum(part.stat().st_size for part in parts) != facts["bytes"]:
            missing.append(name)
            continue
        new = folder / f"{name}.part"
        with new.open("wb") as whole:
            for part in parts:
                with part.open("rb") as opened:
                    shutil.copyfileobj(opened, whole, CHUNK)
        if digest(new) != facts["sha256"]:
            new.unlink()
            raise SetupError(f"{name}: damaged on the way (its checksum differs); send its folders again")
        new.rename(done)
    return missing


def install_commands(folder: Path, flash_attention: bool) -> list[list[str]]:
    """The commands that install a folder's wheels without a network.

    Raises:
        SetupError: There are no wheels, or no archive of flash-attn where it is asked for.
    """
    files = packages_in(folder)
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps"]
    commands = [[*pip, *(str(one) for one in files if one.name.endswith(".whl"))]]
    if flash_attention:
        archives = [one for one in files if normal(one.name).startswith(LATE)]
        if not archives:
            raise SetupError(f"{folder}: no flash-attn there; fill it with --flash-attn")
        if shutil.which("nvcc") is None:
            raise SetupError("flash-attn is built by nvcc, which isn't on PATH: install it, or leave --flash-attn out")
        commands.append([*pip, "--no-build-isolation", str(archives[0])])
    return commands


def run(commands: Sequence[Sequence[str]], dry: bool) -> int:
    """Run commands one after the other; the status of the first that fails."""
    for command in commands:
        shown = command if len(command) < 24 else [*command[:20], f"... and {len(command) - 20} more"]
        print(" ".join(shown), flush=True)
        if not dry and (status := subprocess.run(command, check=False).returncode):
            return status
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = made.add_subparsers(dest="verb", required=True)
    get = verbs.add_parser("download", help="fill a folder, where there is a network")
    get.add_argument("folder", type=Path)
    get.add_argument("--kind", choices=("gpu", "cpu"), default="gpu", help="%(default)s")
    get.add_argument("--leave-out", nargs="+", default=[], metavar="NAME", help="packages that aren't wanted")
    get.add_argument("--have", type=Path, help="what `pip freeze` says on the other machine: not downloaded again")
    get.add_argument("--flash-attn", action="store_true", help="its source too")
    get.add_argument("--dry-run", action="store_true", help="print the commands and stop")
    cut = verbs.add_parser("split", help="share a folder out among folders of a limited size")
    cut.add_argument("folder", type=Path)
    cut.add_argument("target", type=Path)
    cut.add_argument("--megabytes", type=float, default=60.0, help="most of a folder (%(default)s)")
    glue = verbs.add_parser("join", help="put together what was split")
    glue.add_argument("batches", type=Path)
    glue.add_argument("folder", type=Path)
    put = verbs.add_parser("install", help="install a folder's wheels, without a network")
    put.add_argument("folder", type=Path)
    put.add_argument("--flash-attn", action="store_true", help="build it too, with nvcc")
    put.add_argument("--dry-run", action="store_true", help="print the commands and stop")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Command line; 1 from ``join`` while something is missing."""
    arguments = parser().parse_args(words)
    if arguments.verb == "download":
        wanted = pins(arguments.kind, platform.python_version(), arguments.leave_out, arguments.have)
        os.environ.update(NO_NVCC)
        return run(download_commands(arguments.folder, wanted, arguments.flash_attn), arguments.dry_run)
    if arguments.verb == "split":
        print(f"{split(arguments.folder, arguments.target, arguments.megabytes)} folders in {arguments.target}")
        return 0
    if arguments.verb == "join":
        missing = join(arguments.batches, arguments.folder)
        for name in missing:
            print(f"not whole yet: {name}")
        whole = sum(one.name.endswith((".whl", ".tar.gz")) for one in arguments.folder.iterdir())
        print(f"{whole} whole in {arguments.folder}, {len(missing)} not")
        return int(bool(missing))
    return run(install_commands(arguments.folder, arguments.flash_attn), arguments.dry_run)


if __name__ == "__main__":
    run_script(main)
