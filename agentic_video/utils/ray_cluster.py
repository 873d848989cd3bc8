"""Checks of a Ray cluster before Ray connects."""

import os
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from agentic_video.utils.errors import one_line

CURRENT_CLUSTER = Path("/tmp/ray/ray_current_cluster")
"""Ray's note of the address of the cluster that it has started here."""
CONNECT_SECONDS = 10.0
"""Seconds that the head node may take to answer."""


def auth_mode(environment: Mapping[str, str]) -> dict[str, str]:
    """Variable that has Ray show this user's token, unless another mode is set.

    ``ray start --head`` asks for a token as soon as there is one; processes that join show it only with this variable.
    """
    if environment.get("RAY_AUTH_MODE"):
        return {}
    named = environment.get("RAY_AUTH_TOKEN") or environment.get("RAY_AUTH_TOKEN_PATH")
    return {"RAY_AUTH_MODE": "token"} if named or Path(os.path.expanduser("~/.ray/auth_token")).is_file() else {}


def shell_problem(path: str) -> str:
    """Problem of a path from which Ray starts processes, by a shell and without quotes; empty for none."""
    return "" if shlex.quote(path) == path else "Ray takes no path with spaces, letters beyond ASCII or a shell's signs"


def own_token(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables with a token for a command's own Ray cluster; none where one is named already.

    Ray would write a token into the user's home, which may not be writable.
    """
    named = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    if environment.get("RAY_AUTH_MODE") == "disabled" or any(environment.get(name) for name in named):
        return {}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid4().hex * 2}


def unanswered(address: str) -> str:
    """Problem of a Ray address where nothing listens, at which Ray would try for minutes; empty for none."""
    if address == "auto":
        try:
            known = CURRENT_CLUSTER.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            known = ""
        if not known and not _runs_here():
            return "RAY_ADDRESS=auto, and no Ray cluster runs on this machine"
        return unanswered(known) if known != "auto" else ""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return ""
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        return f"no Ray cluster answers at {address}: {one_line(error)}"
    return ""


def _runs_here() -> bool:
    """Return True if a process of Ray runs here, by which Ray finds a cluster without a note."""
    import psutil

    return any(process.info["name"] in ("raylet", "gcs_server") for process in psutil.process_iter(["name"]))
