"""Values that a job's processes get from the launcher: on other machines they have their Ray node's environment."""

import re
import socket
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agentic_video.utils.errors import SetupError, one_line


def quoted(value: Any) -> str:
    """A value as a Hydra override takes it, whatever characters it holds."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{quoted(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(quoted(item) for item in value) + "]"
    # OmegaConf looks for ${...} in it, Hydra for the quote; before both, backslashes are counted in pairs
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", str(value))
    text = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)$", r"\1\1", text) + "'"


def resolved_overrides(config: DictConfig, given: Collection[str] = ()) -> list[str]:
    """Overrides with the values that a config takes from environment variables: a Ray node lacks those.

    Args:
        config: Of the run, composed and not resolved.
        given: Keys that are overridden anyway.
    """
    found = []
    for key in _from_environment(config):
        if key in given:
            continue
        try:
            found.append(f"{key}={quoted(OmegaConf.select(config, key))}")
        except OmegaConfBaseException as error:
            raise SetupError(f"{key}: {one_line(error)}", key=key) from error
    return found


def _from_environment(block: DictConfig, path: str = "") -> Iterator[str]:
    """Keys whose values come from environment variables."""
    for name in map(str, block):
        node = block._get_node(name)
        raw = node._value() if node is not None else None
        if isinstance(raw, str):
            if "${oc.env:" in raw:
                yield path + name
        elif isinstance(node, DictConfig) and raw is not None:
            yield from _from_environment(node, f"{path}{name}.")


def key_names(block: DictConfig) -> Iterator[str]:
    """Names of the environment variables of API keys that a config holds: the judge's, a tool's, ..."""
    for name in map(str, block):
        if name == "api_key_env":
            if isinstance(found := OmegaConf.select(block, name), str):
                yield found
        elif isinstance(node := block._get_node(name), DictConfig) and node._value() is not None:
            yield from key_names(node)


def own_address() -> str:
    """Address under which other machines reach this one; the loopback's where there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: this only chooses the way out
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
