"""``--submit``: run a recipe as a Ray job on the cluster at ``RAY_ADDRESS``."""

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

FORWARDED = ("MODEL_PATH", "TRAIN_FILES", "VAL_FILES", "OUTPUT_DIR", "NNODES", "GPUS_PER_NODE", "WANDB_API_KEY",
             "HF_HOME", "HF_TOKEN", "OPENAI_API_KEY", "JUDGE_BASE_URL", "JUDGE_MODEL")  # fmt: skip
EXCLUDED = [".git", ".venv", ".venv-tools", "outputs", ".cache", "**/__pycache__"]


def entrypoint(recipe: Path, profile: str, overrides: Sequence[str], python: str) -> str:
    """The command that the cluster runs, in its copy of the repository."""
    relative = recipe.relative_to(recipe.parents[1])
    command = [python, "-m", "agentic_video.launch.main", str(relative), "--profile", profile, *overrides]
    return shlex.join(command)


def submit_job(
    recipe: Path, profile: str, overrides: Sequence[str], environment: Mapping[str, str], dry_run: bool = False
) -> int:
    """Submit, follow the log, and return the job's exit status; ``dry_run`` only prints the job's command.

    The cluster's nodes must have this environment at the same path (or name their python in ``CLUSTER_PYTHON``).
    Interrupting the command leaves the job running.

    Raises:
        LaunchError: ``RAY_ADDRESS`` isn't set or nothing answers there.
    """
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobStatus, JobSubmissionClient

    from agentic_video.launch.profile import LaunchError

    address = environment.get("RAY_ADDRESS")
    if not address:
        raise LaunchError("--submit needs RAY_ADDRESS, e.g. http://head-node:8265")
    command = entrypoint(recipe, profile, overrides, environment.get("CLUSTER_PYTHON") or sys.executable)
    if dry_run:
        print(command)
        return 0
    try:
        client = JobSubmissionClient(address)
    except AuthenticationError as error:
        raise LaunchError(
            f"the Ray cluster at {address} asks for a token: set RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN, "
            "or start the cluster with RAY_AUTH_MODE=disabled where its network is your own"
        ) from error
    except (ConnectionError, RuntimeError) as error:
        raise LaunchError(f"no Ray cluster answers at {address}: {error}") from error
    variables = {name: environment[name] for name in FORWARDED if environment.get(name)}
    variables.setdefault("OUTPUT_DIR", os.path.abspath("outputs"))
    # The job's own driver joins the cluster it runs on.
    variables["RAY_ADDRESS"] = "auto"
    job = client.submit_job(
        entrypoint=command,
        runtime_env={"working_dir": str(recipe.parents[1]), "excludes": EXCLUDED, "env_vars": variables},
    )
    print(f"submitted {job} to {address}; stop it with: ray job stop --address {address} {job}", flush=True)
    shown = 0
    while True:
        status = client.get_job_status(job)
        logs = client.get_job_logs(job)
        print(logs[shown:], end="", flush=True)
        shown = len(logs)
        if status.is_terminal():
            print(f"job {job}: {status}")
            return 0 if status is JobStatus.SUCCEEDED else 1
        time.sleep(2)
