"""Say what this machine and environment have, and what to do about what is missing."""

import argparse
import importlib
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from agentic_video.training.patches import VERL_VERSION
from agentic_video.utils.devices import count_gpus

HELP = "say what this machine and environment have, and what is missing"
TAKES_OVERRIDES = False

GIB = 2**30
LIBRARIES = (("av", "av", True), ("decord", "decord", False), ("open_clip", "open_clip_torch", False))
"""Modules, their distributions, and whether nothing goes without them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: ``agentic-video doctor`` has no options."""


def run(arguments: argparse.Namespace) -> int:
    """Look, and print what was found; see :func:`report`."""
    return report()


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: What was looked at.
        value: What was found.
        remedy: What to do about it; empty when all is well.
        note: What is good to know, where nothing has to be done.
    """

    name: str
    value: str
    remedy: str = ""
    note: str = ""


def installed(distribution: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def findings() -> Iterator[Finding]:
    """Look at Python, packages, GPU, decoders, memory, shared memory and disk, one after the other."""
    supported = (3, 11) <= sys.version_info[:2] <= (3, 12)
    yield Finding("python", platform.python_version(), "" if supported else "use Python 3.11 or 3.12")
    gpus = count_gpus()
    extra = "gpu" if gpus else "cpu"
    install = f"agentic-video install {extra}; in a clone: rm -r .venv and start a recipe's script"
    yield Finding("GPUs", str(gpus) if gpus else "none: jobs run in the laptop profile")
    for name in ("torch", "transformers", "ray", "vllm", "tensordict", "TransferQueue"):
        found = installed(name)
        yield Finding(name, found or "missing", "" if found else install)
    verl = installed("verl")
    yield Finding(
        "verl",
        verl or "missing",
        "" if verl == VERL_VERSION else f"this package extends verl {VERL_VERSION}: {install}",
    )
    yield _plugin()
    if gpus:
        found = installed("flash-attn")
        yield Finding("flash-attn", found or "missing", "" if found else install)
    elif platform.machine() == "x86_64":
        flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
        fast = "avx512f" in flags
        yield Finding(
            "CPU",
            f"{os.cpu_count()} cores, AVX-512 {'yes' if fast else 'no'}",
            note="" if fast else "vLLM's CPU build was mostly tried with AVX-512; it ran without, too",
        )
    for module, distribution, needed in LIBRARIES:
        yield _imports(module, distribution, needed, install)
    memory = psutil.virtual_memory()
    yield Finding(
        "memory",
        f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB free",
        "" if memory.available > 10 * GIB else "the laptop job needs about 9 GiB",
    )
    yield _space("shared memory", Path("/dev/shm"), 2, "mount a larger /dev/shm (docker: --shm-size=4g)")
    yield _space("disk", Path.cwd(), 5, "free some space: checkpoints and the environment need it")


def _plugin() -> Finding:
    names = [entry.name for entry in importlib.metadata.entry_points(group="verl.plugins")]
    if "agentic_video" not in names:
        return Finding(
            "verl plugin", "not registered", "install the package itself: pip install --no-deps . in a clone"
        )
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto")
    if policy != "auto" and "agentic_video" not in policy.split(","):
        return Finding("verl plugin", "switched off", "VERL_USE_EXTERNAL_PLUGINS must be auto or list agentic_video")
    try:
        importlib.import_module("agentic_video.training.plugin")
    except (Exception, SystemExit) as error:
        return Finding("verl plugin", "fails to load", str(error))
    return Finding("verl plugin", "loads")


def _imports(module: str, distribution: str, needed: bool, install: str) -> Finding:
    found = installed(distribution)
    if found is None:
        return Finding(distribution, "missing", install if needed else "")
    try:
        importlib.import_module(module)
    except Exception as error:
        return Finding(distribution, f"{found}, fails to import: {error}", install if needed else "")
    return Finding(distribution, found)


def _space(name: str, folder: Path, needed: int, remedy: str) -> Finding:
    if not folder.is_dir():
        return Finding(name, f"{folder} doesn't exist", remedy)
    free = shutil.disk_usage(folder).free / GIB
    return Finding(name, f"{free:.1f} GiB free in {folder}", "" if free >= needed else remedy)


def report() -> int:
    """Print the findings.

    Returns:
        Exit status: 1 when something is missing.
    """
    missing = 0
    for finding in findings():
        print(f"{'!!' if finding.remedy else 'ok'} {finding.name:15} {finding.value}")
        if finding.remedy:
            missing += 1
            print(f"   {'':15} -> {finding.remedy}")
        if finding.note:
            print(f"   {'':15} ({finding.note})")
    return int(missing > 0)
