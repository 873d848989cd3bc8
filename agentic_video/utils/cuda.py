"""What the GPU environment needs of a machine: a driver for its CUDA, and that CUDA's compiler.

``recipes/setup.sh`` runs this file by itself, with a plain Python, before there is an environment: it imports nothing
else.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

CUDA = 13
"""CUDA release of the locked torch (``cuda-toolkit`` in uv.lock)."""
DRIVER = 580
"""The first driver branch that runs it: NVIDIA's "CUDA Toolkit and Minimum Required Driver Version", CUDA 13."""
BUILDING = (
    f"flash-attn has no wheel for torch 2.11 with CUDA {CUDA}: it is compiled on this machine, which may take an hour "
    "or more (MAX_JOBS compilers at a time, several GB of memory each; FLASH_ATTN_CUDA_ARCHS=90 compiles for H100 only)"
)
FLASH_ATTN = "AGENTIC_VIDEO_FLASH_ATTN"
"""Environment variable of ``recipes/setup.sh``: a wheel of flash-attn, or ``no`` to go without."""
NO_FLASH_ATTN = "each job is given model.use_remove_padding=False and model.override_config.attn_implementation=sdpa"


def _said(command: Sequence[str]) -> str:
    """What a program prints; nothing where it isn't there, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def driver_version() -> str:
    """Version of the NVIDIA driver, e.g. ``580.65.06``; empty where there is none."""
    lines = _said(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).split()
    return lines[0] if lines and re.fullmatch(r"\d+(\.\d+)+", lines[0]) else ""


def driver_cuda() -> int:
    """The newest CUDA that the driver's library runs; 0 where that isn't known.

    A compatibility package (``cuda-compat``) lets an older driver run a newer CUDA; ``nvidia-smi`` then names that one.
    """
    found = re.search(r"CUDA(?: UMD)? Version\s*:\s*(\d+)\.", _said(["nvidia-smi"]))
    return int(found[1]) if found else 0


def nvcc(environment: Mapping[str, str] | None = None) -> tuple[str, str]:
    """The CUDA compiler that builds use, and its release, e.g. ``13.0``; empty where there is none.

    torch's extensions take that of ``CUDA_HOME`` (or ``CUDA_PATH``), then that on ``PATH``, then ``/usr/local/cuda``
    (``torch/utils/cpp_extension.py``, ``_find_cuda_home``).
    """
    environment = os.environ if environment is None else environment
    home = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    found = Path(home) / "bin" / "nvcc" if home else shutil.which("nvcc", path=environment.get("PATH"))
    path = str(found or "/usr/local/cuda/bin/nvcc")
    release = re.search(r"release (\d+\.\d+)", _said([path, "--version"]))
    return (path, release[1]) if release else ("", "")


def driver_problem() -> str:
    """Why the driver won't run the GPU environment, and what to do; empty where it will, or where there is none."""
    version = driver_version()
    if not version or int(version.partition(".")[0]) >= DRIVER or driver_cuda() >= CUDA:
        return ""
    return (
        f"the NVIDIA driver is {version}; torch here is built for CUDA {CUDA}, which needs {DRIVER} or later: update "
        f"the driver, or load NVIDIA's package cuda-compat-{CUDA}-0"
    )


def nvcc_problem() -> str:
    """Why flash-attn can't be compiled, and what to do; empty where it can."""
    path, release = nvcc()
    if release.partition(".")[0] == str(CUDA):
        return ""
    found = f"{path} is of CUDA {release}" if path else "there is no nvcc, on PATH, in CUDA_HOME or in /usr/local/cuda"
    return (
        f"flash-attn is compiled on this machine with nvcc of CUDA {CUDA}: {found}. Load your cluster's module (such "
        f"as module load cuda/{CUDA}.0), set CUDA_HOME, or use the image (docker/README.md)"
    )


def main() -> int:
    """Say what stands in the way of the GPU environment, a line each; 1 where something does."""
    compiles = not os.environ.get(FLASH_ATTN)
    problems = [problem for problem in (driver_problem(), nvcc_problem() if compiles else "") if problem]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if compiles and not problems:
        print(f"{BUILDING}. With a wheel: {FLASH_ATTN}=WHEEL. Without: {FLASH_ATTN}=no, and {NO_FLASH_ATTN}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
