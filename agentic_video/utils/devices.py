"""What the machine has."""

import subprocess


def count_gpus() -> int:
    """Number of NVIDIA GPUs that the driver reports."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
