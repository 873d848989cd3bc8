"""Requirements of the GPU environment: a driver for its CUDA, and that CUDA's compiler.

``recipes/setup.sh`` runs this file by itself, before there is an environment: it imports the standard library only.
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


def _output(command: Sequence[str]) -> str:
    """Output of a program; empty where it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def driver_version() -> str:
    """Version of the NVIDIA driver, e.g. ``580.65.06``; empty where there is none."""
    lines = _output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).split()
    return lines[0] if lines and re.fullmatch(r"\d+(\.\d+)+", lines[0]) else ""


def driver_cuda() -> int:
    """Newest CUDA that the driver's library runs, with a ``cuda-compat`` package too; 0 where that isn't known."""
    found = re.search(r"CUDA(?: UMD)? Version\s*:\s*(\d+)\.", _output(["nvidia-smi"]))
    return int(found[1]) if found else 0


def nvcc(environment: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Path and release, e.g. ``13.0``, of the CUDA compiler of builds; empty where there is none.

    In the order of torch's extensions (``torch/utils/cpp_extension.py``, ``_find_cuda_home``).
    """
    environment = os.environ if environment is None else environment
    home = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    found = Path(home) / "bin" / "nvcc" if home else shutil.which("nvcc", path=environment.get("PATH"))
    path = str(found or "/usr/local/cuda/bin/nvcc")
    release = re.search(r"release (\d+\.\d+)", _output([path, "--version"]))
    return (path, release[1]) if release else ("", "")


def driver_problem() -> str:
    """Problem of the driver with the GPU environment, and its remedy; empty without one, or without a driver."""
    version = driver_version()
    if not version or int(version.partition(".")[0]) >= DRIVER or driver_cuda() >= CUDA:
        return ""
    return (
        f"the NVIDIA driver is {version}; torch here is built for CUDA {CUDA}, which needs {DRIVER} or later: update "
        f"the driver, or load NVIDIA's package cuda-compat-{CUDA}-0"
    )


def nvcc_problem() -> str:
    """Obstacle to compiling flash-attn, and its remedy; empty without one."""
    path, release = nvcc()
    if release.partition(".")[0] == str(CUDA):
        return ""
    found = f"{path} is of CUDA {release}" if path else "there is no nvcc, on PATH, in CUDA_HOME or in /usr/local/cuda"
    return (
        f"flash-attn is compiled on this machine with nvcc of CUDA {CUDA}: {found}. Load your cluster's module (such "
        f"as module load cuda/{CUDA}.0), set CUDA_HOME, or use the image (docker/README.md)"
    )


def main() -> int:
    """Print the obstacles to the GPU environment, a line each; return 1 where there are some."""
    compiles = not os.environ.get(FLASH_ATTN)
    problems = [problem for problem in (driver_problem(), nvcc_problem() if compiles else "") if problem]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if compiles and not problems:
        print(f"{BUILDING}. With a wheel: {FLASH_ATTN}=WHEEL. Without: {FLASH_ATTN}=no, and {NO_FLASH_ATTN}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
