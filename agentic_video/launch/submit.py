"""``--submit``: run a recipe as a Ray job on the cluster at ``RAY_ADDRESS``."""

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from agentic_video.config.compose import PACKAGED
from agentic_video.launch.options import ChangedData, LaunchOptions, Profile
from agentic_video.launch.stage import key_names
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.ray_cluster import CONNECT_SECONDS
from agentic_video.utils.secrets import SECRETS_FILE, forwarded, keys_of

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

NAMED = (
    "MODEL_PATH",
    "TRAIN_FILES",
    "VAL_FILES",
    "OUTPUT_DIR",
    "NNODES",
    "GPUS_PER_NODE",
    "JUDGE_BASE_URL",
    "JUDGE_MODEL",
    "XDG_CACHE_HOME",
    SECRETS_FILE,
)
"""Environment variables of this command that the job gets in addition to those of every job's processes
(:func:`agentic_video.utils.secrets.forwarded`)."""
EXCLUDED = [".git", ".venv", ".venv-gpu", ".venv-tools", "outputs", "site", ".cache", "**/__pycache__"]
"""Parts of the repository that aren't copied to the cluster."""
MAX_COPIED = 512 * 2**20
"""Most bytes that Ray copies with a job."""
POLL_SECONDS = 2.0
PATIENCE_SECONDS = 300.0
"""Time limit of asking about a job whose cluster has stopped answering: a head node or a tunnel may restart."""
LOST_STATUS = 75
"""Exit status afterwards, while the job may still run (``EX_TEMPFAIL``)."""


def entrypoint(
    recipe: Path, profile: Profile, overrides: Sequence[str], python: str, changed: ChangedData = "refuse"
) -> str:
    """The command that the cluster runs, in its copy of the repository; a wheel's recipe goes by its name there."""
    named = recipe.name if recipe.parent == PACKAGED else str(recipe.relative_to(recipe.parents[1]))
    command = [python, "-m", "agentic_video.cli", "run", named, "--profile", profile]
    command += [*(("--changed-data", changed) if changed != "refuse" else ()), *overrides]
    return shlex.join(command)


def copied(recipe: Path) -> dict[str, Any]:
    """Runtime environment with a copy of the recipe's repository; of a wheel none, as the nodes have it installed."""
    return {} if recipe.parent == PACKAGED else {"working_dir": str(recipe.parents[1]), "excludes": EXCLUDED}


def check_copied(recipe: Path) -> None:
    """Check the size of the recipe's repository before Ray packs gigabytes and refuses them."""
    if recipe.parent == PACKAGED:
        return
    # hidden ones are caches, which .gitignore names and Ray leaves out
    shown = (
        part for part in recipe.parents[1].iterdir() if not part.name.startswith(".") and part.name not in EXCLUDED
    )
    parts = {part: _bytes_in(part) for part in shown}
    if sum(parts.values()) > MAX_COPIED:
        largest = max(parts, key=lambda part: parts[part])
        raise SetupError(
            f"{largest}: {parts[largest] / 2**20:,.0f} MiB would be copied with the job, and Ray takes "
            f"{MAX_COPIED // 2**20} MiB of a repository: move it out of here, to storage that all nodes share"
        )


def _bytes_in(part: Path) -> int:
    """Bytes of a file, or of a folder's files; links count nothing."""
    if part.is_symlink() or not part.is_dir():
        return 0 if part.is_symlink() else part.stat().st_size
    return sum(
        file.lstat().st_size
        for folder, _, files in os.walk(part)
        for file in (Path(folder, name) for name in files)
        if "__pycache__" not in folder and not file.is_symlink()
    )


def submit_job(options: LaunchOptions, profile: Profile, config: DictConfig, environment: Mapping[str, str]) -> int:
    """Submit a job and follow its log; a dry run only prints the job's command. Interrupting leaves the job running.

    The cluster's nodes must have this environment at the same path (or name their python in ``CLUSTER_PYTHON``).
    """
    if options.stage != "grpo":
        raise SetupError(f"--submit is for GRPO's Ray job; {options.stage} runs under torchrun on the machine itself")
    address = environment.get("RAY_ADDRESS")
    if not address:
        raise SetupError("--submit needs RAY_ADDRESS, e.g. http://head-node:8265")
    python = environment.get("CLUSTER_PYTHON") or sys.executable
    command = entrypoint(options.recipe, profile, options.overrides, python, options.changed_data)
    if options.dry_run:
        print(command)
        return 0
    check_copied(options.recipe)
    client = _connect(address)
    variables = {**forwarded(environment), **{name: environment[name] for name in NAMED if environment.get(name)}}
    if (keys := keys_of(environment, key_names(config))) and SECRETS_FILE not in variables:
        print(
            f"{', '.join(keys)}: not passed on, as Ray shows a job's variables to everybody who sees its dashboard. "
            f"Set them on the nodes, or write lines of NAME=value into a file there and set {SECRETS_FILE} to its path",
            flush=True,
        )
    # its driver has another working directory: a copy of the repository
    variables["OUTPUT_DIR"] = os.path.abspath(os.path.expanduser(variables.get("OUTPUT_DIR", "outputs")))
    # The job's own driver joins the cluster it runs on.
    variables["RAY_ADDRESS"] = "auto"
    try:
        job = client.submit_job(entrypoint=command, runtime_env={**copied(options.recipe), "env_vars": variables})
    except RuntimeError as error:  # e.g. a head node that has just started
        raise SetupError(f"the Ray cluster at {address} doesn't take the job: {one_line(error)}") from error
    print(f"submitted {job} to {address}; stop it with: ray job stop --address {address} {job}", flush=True)
    return _follow(client, job, address)


def _connect(address: str) -> "JobSubmissionClient":
    """A client of a cluster."""
    # Ray takes a second to import: only who submits waits for it.
    import requests
    from ray.exceptions import AuthenticationError, RayError
    from ray.job_submission import JobSubmissionClient

    try:
        if address.startswith(("http://", "https://")):  # Ray's client waits for ever
            requests.get(f"{address.rstrip('/')}/api/version", timeout=CONNECT_SECONDS)
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise SetupError(
            f"the Ray cluster at {address} asks for a token: set RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN, "
            "or start the cluster with RAY_AUTH_MODE=disabled where its network is your own"
        ) from error
    except (OSError, RuntimeError, RayError, KeyError, ValueError) as error:
        raise SetupError(f"no Ray cluster answers at {address}: {one_line(error)}") from error


def _follow(client: "JobSubmissionClient", job: str, address: str) -> int:
    """Print a job's log as it grows, until it ends; 0 when it succeeded.

    A request that fails is no end of the job: the cluster is asked again for :data:`PATIENCE_SECONDS`.
    """
    # Ray takes a second to import: only who submits waits for it.
    from ray.exceptions import RayError
    from ray.job_submission import JobStatus

    shown = 0
    answered = time.monotonic()
    while True:
        try:
            status = client.get_job_status(job)
            logs = client.get_job_logs(job)
        except (OSError, RuntimeError, RayError) as error:  # requests' errors are OSErrors
            if time.monotonic() - answered < PATIENCE_SECONDS:
                time.sleep(POLL_SECONDS)
                continue
            print(
                f"{address} has told nothing of {job} for {PATIENCE_SECONDS / 60:g} minutes ({one_line(error)[:200]}); "
                f"the job itself may run on, follow it with: ray job logs --address {address} --follow {job}",
                file=sys.stderr,
            )
            return LOST_STATUS
        answered = time.monotonic()
        print(logs[shown:], end="", flush=True)
        shown = len(logs)
        if status.is_terminal():
            print(f"job {job}: {status}")
            return 0 if status is JobStatus.SUCCEEDED else 1
        time.sleep(POLL_SECONDS)
