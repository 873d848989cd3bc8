"""What can be told of a Ray cluster before Ray is asked."""

import socket
from collections.abc import Mapping
from pathlib import Path

from agentic_video.utils.errors import one_line

CONNECT_SECONDS = 10.0
"""How long the head node may take to answer at all."""


def auth_mode(environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that lets Ray show the token that this user has, where nothing else is said.

    ``ray start --head`` asks for a token as soon as there is one; what joins the cluster shows it only when told to.
    """
    if environment.get("RAY_AUTH_MODE"):
        return {}
    named = environment.get("RAY_AUTH_TOKEN") or environment.get("RAY_AUTH_TOKEN_PATH")
    return {"RAY_AUTH_MODE": "token"} if named or (Path.home() / ".ray" / "auth_token").is_file() else {}


def unanswered(address: str) -> str:
    """Why nothing can be asked at a Ray address; empty where something listens. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():  # auto, or ray://
        return ""
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        return f"no Ray cluster answers at {address}: {one_line(error)}"
    return ""
