"""Environment variables of every process that a command starts, and folders of outputs."""

import os
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from agentic_video.utils.errors import SetupError

DISTRIBUTION = "agentic-video-rl"
"""The package's name for pip. PyPI's ``agentic-video`` is another program."""

LAPTOP_ENV: Mapping[str, str] = {
    "VERL_PLATFORM": "cpu",
    "TORCHDYNAMO_DISABLE": "1",
    # many processes on few cores: a second thread each would only wait for the others
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    # verl's transfer queue would want 8, and complain at each of thousands of accesses that there aren't as many
    "TQ_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Ray would give its workers, which do all the work here, a turn only where nothing else of the machine wants one
    "RAY_worker_niceness": "0",
    # workers without the job's environment, which none of its processes can use
    "RAY_prestart_worker_first_driver": "0",
    # what Ray notes of each call of an actor, for a dashboard that isn't started: a twentieth of an episode's time
    "RAY_task_events_report_interval_ms": "0",
    "RAY_enable_timeline": "0",
    "RAY_event_stats": "0",
    "AGENTIC_VIDEO_POLL_SECONDS": "0.1",
    "HF_HUB_OFFLINE": "1",
    # nothing is downloaded: the bars would be those of loading a tiny model
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
"""Variables of machines without a GPU."""

COMMON_ENV: Mapping[str, str] = {
    "VLLM_NO_USAGE_STATS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "HYDRA_FULL_ERROR": "1",
}
"""Variables of every machine."""


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Folder of synthetic worlds and tiny models: below ``XDG_CACHE_HOME``, or ``~/.cache``."""
    # os.path's doesn't raise where there is no home
    return Path(os.path.expanduser(environment.get("XDG_CACHE_HOME") or "~/.cache")) / "agentic_video" / "toyworld"


DEFAULT_CACHE = cache_folder(os.environ)


def missing_requirements() -> list[str]:
    """Names of required distributions that aren't installed."""
    try:
        texts = distribution(DISTRIBUTION).requires or []
    except PackageNotFoundError:
        return []
    names = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in texts if ";" not in text]
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def file_in_the_way(folder: Path) -> Path | None:
    """Return the file that has the name of a folder to be made, or of one above it."""
    return next((parent for parent in (folder, *folder.parents) if os.path.isfile(parent)), None)


def output_folder(environment: Mapping[str, str]) -> Path:
    """Folder of all runs and evaluations: ``OUTPUT_DIR``, or ``outputs`` in the current folder."""
    folder = Path(os.path.expanduser(environment.get("OUTPUT_DIR") or "outputs")).resolve()
    if "${" in str(folder):
        raise SetupError(f"{folder}: a config can't hold a path with ${{; set OUTPUT_DIR to another")
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise SetupError(f"{folder!r}: the name isn't UTF-8; set OUTPUT_DIR to another") from None
    return folder


def spawn_engines() -> None:
    """Have vLLM start its engine as a new process, not as a fork of this one, where torch is built for CUDA.

    Asking torch for a GPU, as verl does at import, keeps every fork from using it. A user's own value is left.
    """
    import torch

    if torch.version.cuda is not None:
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
