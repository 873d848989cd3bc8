"""Hosts with network and file systems of their own on this machine (``hosts.sh``)."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
HOSTS = ["bash", str(REPOSITORY / "tests" / "e2e" / "hosts.sh")]


def needs(*programs: str) -> pytest.MarkDecorator:
    """A mark of tests that need root and programs."""
    lacking = [name for name in ("ip", "nsenter", "unshare", *programs) if shutil.which(name) is None]
    return pytest.mark.skipif(os.geteuid() != 0 or bool(lacking), reason=f"needs root, and {', '.join(lacking)}")


@contextmanager
def two_hosts(folder: Path, network: str) -> Iterator[None]:
    """Two hosts, n1 and n2, that share a folder and have the addresses 1 and 2 of a network."""
    try:
        subprocess.run([*HOSTS, "up", str(folder), "2"], env={**os.environ, "NETWORK": network}, check=True)
        yield
    finally:
        subprocess.run([*HOSTS, "down", str(folder)], check=False)
