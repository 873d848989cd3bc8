"""What the machine has."""

import os
import re
import subprocess
from collections.abc import Mapping

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable that lists the GPUs which programs may use."""


def count_gpus() -> int:
    """Number of NVIDIA GPUs that the driver reports, and that ``CUDA_VISIBLE_DEVICES`` doesn't hide."""
    entries = visible_entries(os.environ)
    if entries == []:
        return 0
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    if entries is None:
        return found
    # CUDA reads the list up to the first number that it has no GPU for
    known = [entry for entry in entries if not entry.isdecimal() or int(entry) < found]
    return min(len(known), found)


def visible_entries(environment: Mapping[str, str]) -> list[str] | None:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` lists; None where it isn't set, and so hides none.

    CUDA reads numbers and names of GPUs up to the first entry that is neither, such as -1 or Slurm's ``NoDevFiles``.
    """
    if (listed := environment.get(VISIBLE)) is None:
        return None
    found: list[str] = []
    for entry in (part.strip() for part in listed.split(",")):
        if not re.fullmatch(r"\d+|(GPU|MIG)-\S+", entry) or entry in found:
            break
        found.append(entry)
    return found
