"""Machines with GPUs, as far as their commands say so."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Machine:
    """Commands of a machine in a folder that comes first on the search path.

    Attributes:
        folder: Where they are.
    """

    folder: Path

    def command(self, name: str, script: str) -> None:
        """Put a shell script there."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (self.folder / name).chmod(0o755)

    def path(self, driver: str = "", cuda: str = "", nvcc: str = "") -> str:
        """``PATH`` of a machine.

        Args:
            driver: Version of its driver; empty for no GPU.
            cuda: What the driver says it runs; by default what comes with its version.
            nvcc: Release of its CUDA compiler; empty for none of its own.
        """
        if driver:
            cuda = cuda or ("13.0" if driver >= "580" else "12.4")
            self.command(
                "nvidia-smi",
                f"""case "$*" in
-L) echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)"; echo "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)" ;;
*driver_version*) echo {driver}; echo {driver} ;;
"") echo "| NVIDIA-SMI {driver}    Driver Version: {driver}    CUDA Version: {cuda}     |" ;;
esac""",
            )
        if nvcc:
            self.command("nvcc", f'echo "Cuda compilation tools, release {nvcc}, V{nvcc}.88"')
        return f"{self.folder}:{os.environ['PATH']}"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without GPUs, until it is given commands."""
    return Machine(tmp_path / "commands")
