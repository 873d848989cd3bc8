"""What a job's processes on other machines get from the launcher: they have the environment of the Ray node that
started them, not the launcher's."""

import os
import re
import socket
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.secrets import SECRETS_FILE, written

FORWARDED = (
    "AGENTIC_VIDEO_",
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
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""Starts of the names of environment variables that a job's processes get as the launcher has them."""
SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""A variable with one of these in its name is handed over in a file: Ray shows the others to whoever sees its
dashboard, and writes them into its logs."""
KEYS_FILE = "secrets.env"
"""In a run's folder, as long as it runs."""
KEYS = ("WANDB_API_KEY", "HF_TOKEN", "OPENAI_API_KEY")
"""Variables with keys that a job's processes may need, beside those that the config names."""


def quoted(value: Any) -> str:
    """A value as a Hydra override takes it, whatever characters it holds."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{quoted(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(quoted(one) for one in value) + "]"
    # OmegaConf looks for ${...} in it, Hydra for the quote; before both, backslashes are counted in pairs
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", str(value))
    text = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)$", r"\1\1", text) + "'"


def resolved_overrides(config: DictConfig, given: Collection[str] = ()) -> list[str]:
    """Overrides that hold what a config takes from environment variables: they are set here, and not on a Ray node.

    Args:
        config: Of the run, composed and not resolved.
        given: Keys that are overridden anyway.

    Raises:
        SetupError: A variable isn't set; the message names it and the key.
    """
    found = []
    for key in _from_environment(config):
        if key in given:
            continue
        try:
            found.append(f"{key}={quoted(OmegaConf.select(config, key))}")
        except OmegaConfBaseException as error:
            raise SetupError(f"{key}: {one_line(error)}") from error
    return found


def _from_environment(block: DictConfig, path: str = "") -> Iterator[str]:
    """The keys whose values are taken from environment variables."""
    for name in map(str, block):
        node = block._get_node(name)
        raw = node._value() if node is not None else None
        if isinstance(raw, str):
            if "${oc.env:" in raw:
                yield path + name
        elif isinstance(node, DictConfig) and raw is not None:
            yield from _from_environment(node, f"{path}{name}.")


def forwarded(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of this command that its processes on a cluster get too; no secrets among them."""
    return {
        name: value
        for name, value in environment.items()
        if value and name.startswith(FORWARDED) and not _is_secret(name) and name != SECRETS_FILE
    }


def secrets(environment: Mapping[str, str], config: DictConfig) -> dict[str, str]:
    """The environment variables of this command that hold keys which the run may need.

    Args:
        config: Of the run; its judge and its verifier name the variables of their keys.
    """
    named = [OmegaConf.select(config, f"agentic_video.{who}.api_key_env") for who in ("judge", "verifier")]
    known = {*KEYS, *(str(name) for name in named if name)}
    wanted = [name for name in environment if name in known or (name.startswith(FORWARDED) and _is_secret(name))]
    return {name: environment[name] for name in sorted(wanted) if environment[name]}


def write_secrets(folder: Path, values: Mapping[str, str]) -> dict[str, str]:
    """Write keys where only this user can read them.

    Args:
        folder: Of the run, which the nodes share.

    Returns:
        The variable that tells a job's processes of the file; none where there are no keys.
    """
    if not values:
        return {}
    file = folder / KEYS_FILE
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(written(values))
    return {SECRETS_FILE: str(file)}


def _is_secret(name: str) -> bool:
    return any(part in name.upper() for part in SECRET)


def own_address() -> str:
    """The address under which other machines reach this one; the loopback's where there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: this only chooses the way out
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
