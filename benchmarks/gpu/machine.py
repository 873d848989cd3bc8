"""Facts about the machine, and what a cell requires of it."""

import importlib.util
import os
import platform
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

from agentic_video.utils.cuda import driver_version
from agentic_video.utils.errors import SetupError

REPOSITORY = Path(__file__).resolve().parents[2]

PACKAGES = ("torch", "transformers", "vllm", "verl", "ray", "flash-attn", "open_clip_torch", "tensordict", "triton")
"""Packages whose versions are noted with the figures."""


class Skip(Exception):
    """A cell can't be measured here; the message says why, and what would change that."""


def run_script(main: Callable[[], int]) -> NoReturn:
    """End the process with a command line's status; 2 and one line for a request that can't be met."""
    try:
        sys.exit(main())
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


@cache
def has_flash_attention() -> bool:
    """Return True if flash-attn can be imported; one built for another torch can't."""
    if importlib.util.find_spec("flash_attn") is None:
        return False
    try:
        import flash_attn  # noqa: F401
    except Exception:
        return False
    return True


def package_version(name: str) -> str:
    """The version of an installed package; empty where it isn't."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in this process."""
    return function(*arguments)


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own; what it raises is raised here."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def require(*modules: str) -> None:
    """Raise Skip unless all modules are installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise Skip(f"{module} isn't installed")


def require_memory(device: str, gib: float) -> None:
    """Raise Skip unless the GPU has enough free memory."""
    if device != "cuda":
        return
    import torch

    free, total = torch.cuda.mem_get_info()
    if free < gib * 2**30:
        raise Skip(f"needs about {gib:.0f} GiB of GPU memory; {free / 2**30:.0f} of {total / 2**30:.0f} GiB are free")


def find_device(asked: str) -> dict[str, Any]:
    """Facts about the device that is asked for, or with ``auto`` a GPU if torch sees one; raises Skip without one."""
    import psutil
    import torch

    driver = driver_version()
    if asked == "cuda" and not torch.cuda.is_available():
        raise Skip(
            f"torch {torch.__version__} sees no GPU (driver: {driver or 'none'}; CUDA {torch.version.cuda} needs a "
            "driver of 580 or newer)"
        )
    if on_gpu := asked != "cpu" and torch.cuda.is_available():
        # A process that has asked the GPU itself holds memory of it until it ends.
        name, memory = alone(_properties)
    else:
        name, memory = f"{processor()}, {os.cpu_count()} cores", psutil.virtual_memory().total
    return {
        "device": "cuda" if on_gpu else "cpu",
        "name": name,
        "memory_gib": round(memory / 2**30, 1),
        "driver": driver if on_gpu else "",
        "cuda": torch.version.cuda if on_gpu else None,
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
    }


def _properties() -> tuple[str, int]:
    """Name and bytes of the first GPU."""
    import torch

    found = torch.cuda.get_device_properties(0)
    return str(found.name), int(found.total_memory)


def processor() -> str:
    """Name of the machine's processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
