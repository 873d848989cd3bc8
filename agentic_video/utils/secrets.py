"""What processes on other machines get of a command's environment: variables, and keys of services, which go in a file
that only the user can read. They have the environment of the Ray node that started them, not the command's."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

SECRETS_FILE = "AGENTIC_VIDEO_SECRETS_FILE"
"""Environment variable that names a file of lines ``NAME=value``. The launcher writes one for a job on a Ray cluster; a
file of one's own can be named on the nodes instead."""
FORWARDED = (
    "AGENTIC_VIDEO_",
    "ALL_PROXY",
    "CUBLAS_",
    "GLOO_",
    "HF_",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NCCL_",
    "NO_PROXY",
    "PYTORCH_",
    "TORCH_",
    "VERL_",
    "VLLM_",
    "WANDB_",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""Starts of the names of environment variables that a job's processes get as the launcher has them."""
SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""A variable with one of these in its name, and a proxy with a password, is handed over in a file: Ray shows the others
to whoever sees its dashboard, and writes them into its logs."""
KEYS_FILE = "secrets.env"
"""In a run's folder, as long as it runs."""
KEYS = ("WANDB_API_KEY", "HF_TOKEN", "OPENAI_API_KEY", "TOOL_API_KEY")
"""Variables with keys that a job's processes may need, besides those that the config names."""


def written(values: Mapping[str, str]) -> str:
    """The text of such a file."""
    return "".join(f"{name}={json.dumps(value)}\n" for name, value in values.items())


def forwarded(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of this command that its processes on a cluster get too; no secrets among them."""
    return {
        name: value
        for name, value in environment.items()
        if value and name.startswith(FORWARDED) and not _is_secret(name, value) and name != SECRETS_FILE
    }


def keys_of(environment: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """The environment variables of this command that hold keys which its processes may need.

    Args:
        named: Further names of variables.
    """
    known = {*KEYS, *named}
    wanted = [
        name
        for name, value in environment.items()
        if name in known or (name.startswith(FORWARDED) and _is_secret(name, value))
    ]
    return {name: environment[name] for name in sorted(wanted) if environment[name]}


def hand_keys(folder: Path, environment: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """Write the keys that processes on other machines need where only this user can read them.

    Args:
        folder: Of the run, which the machines share; it gets :data:`KEYS_FILE`.
        environment: Of this command.
        named: See :func:`keys_of`.

    Returns:
        The variable that tells those processes of the file, the user's own where one is named; none where there are no
        keys.
    """
    if own := environment.get(SECRETS_FILE):
        return {SECRETS_FILE: own}
    values = keys_of(environment, named)
    if not values:
        return {}
    file = folder / KEYS_FILE
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(written(values))
    return {SECRETS_FILE: str(file)}


def load_secrets() -> None:
    """Set the environment variables of the file that is named, where this process doesn't have them already.

    A file that can't be read costs a line on stderr: whether something needs a key is for that to say.
    """
    path = os.environ.get(SECRETS_FILE)
    if not path:
        return
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        print(f"agentic_video: {SECRETS_FILE}={path}: {error.strerror}; its keys are missing here", file=sys.stderr)
        return
    for line in lines:
        name, separator, value = line.partition("=")
        if separator and not name.lstrip().startswith("#"):
            os.environ.setdefault(name.strip().removeprefix("export "), _plain(value.strip()))


def _plain(value: str) -> str:
    """A value without the quotes around it."""
    if value[:1] == '"':
        try:
            return str(json.loads(value))
        except ValueError:
            pass
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _is_secret(name: str, value: str) -> bool:
    proxy_with_password = name.lower().endswith("_proxy") and name.lower() != "no_proxy" and "@" in value
    return proxy_with_password or any(part in name.upper() for part in SECRET)
