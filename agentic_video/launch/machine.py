"""What a job leaves on the machine, and how much memory it takes."""

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
from omegaconf import DictConfig, OmegaConf

from agentic_video.launch.options import Stage
from agentic_video.utils.errors import SetupError

SEGMENTS = ("psm_*", "verl_weights_*")
"""Names of the files in ``/dev/shm`` that a killed job may leave."""


def require_engine(stage: Stage, gpus: int) -> None:
    """Make sure that what plays rollouts is installed; the other stages play none.

    Raises:
        SetupError: It isn't.
    """
    if stage == "grpo" and find_spec("vllm") is None:
        raise SetupError(f"vLLM isn't installed in this environment: agentic-video install {'gpu' if gpus else 'cpu'}")


def require_attention(config: DictConfig) -> None:
    """Make sure that the attention which a GPU's job computes with is installed.

    Args:
        config: Of the job, composed.

    Raises:
        SetupError: It is flash-attn's, and that isn't.
    """
    block = "actor_rollout_ref.model" if "actor_rollout_ref" in config else "model"
    key = f"{block}.override_config.attn_implementation"
    kind = OmegaConf.select(config, key, throw_on_missing=False) or "flash_attention_2"  # as verl reads it
    if kind == "flash_attention_2" and find_spec("flash_attn") is None:
        raise SetupError(
            "flash-attn isn't installed in this environment: install a wheel of it (pip install --no-deps WHEEL), or "
            f"compute attention with torch: {block}.use_remove_padding=False ++{key}=sdpa"
        )


def shared_segments() -> set[Path]:
    """Shared-memory segments of Python programs, and those through which verl sends weights to vLLM."""
    folder = Path("/dev/shm")
    return {segment for pattern in SEGMENTS for segment in folder.glob(pattern)}


def remove_segments(candidates: set[Path]) -> int:
    """Remove those of our own shared-memory segments that no process maps any more.

    vLLM's engine is killed before it can unlink its own.

    Args:
        candidates: Files in ``/dev/shm``.

    Returns:
        Number of removed segments.
    """
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped |= {line.split()[-1] for line in maps.read_text().splitlines() if "/dev/shm/" in line}
    removed = 0
    for segment in candidates:
        with contextlib.suppress(OSError):
            if str(segment) not in mapped and segment.stat().st_uid == os.getuid():
                segment.unlink()
                removed += 1
    return removed


@contextlib.contextmanager
def clean_machine() -> Iterator[Path]:
    """Leave nothing of a job on the machine but its outputs.

    Yields:
        A temporary folder with a short path (Ray puts sockets there) for everything that the job writes on the side;
        gone afterwards, as are the job's shared-memory segments.
    """
    before = shared_segments()
    folder = Path(tempfile.mkdtemp(prefix="av-"))
    try:
        yield folder
    finally:
        remove_segments(shared_segments() - before)
        shutil.rmtree(folder, ignore_errors=True)


class PeakMemory:
    """Watches the memory of a process's descendants (proportional set size, so that shared pages count once).

    Args:
        root: The process's number.
        interval: Seconds between two looks, which take tens of milliseconds for each process.

    Attributes:
        peak: Most bytes so far.
    """

    def __init__(self, root: int, interval: float = 20.0):
        self.peak = 0
        self._root, self._interval = root, interval
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(self._interval):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        """Bytes at this moment."""
        total = 0
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self._root).children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError, ValueError, IndexError):
                    text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
                    total += int(text.split("\nPss:")[1].split()[0]) * 1024
        return total

    def stop(self) -> int:
        """Stop watching.

        Returns:
            The peak in bytes.
        """
        self._done.set()
        self._thread.join()
        return self.peak
