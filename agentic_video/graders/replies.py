"""Readers of what another model replied."""

import json
import re
from typing import Any


def spoken(text: str) -> str:
    """A reply without the thoughts before it."""
    return text.rpartition("</think>")[2].strip()


def read_object(reply: str) -> dict[str, Any] | None:
    """The one JSON object that a reply is, alone or in a code fence; None when it is anything else."""
    found = _read_json(reply, r"\{.*\}")
    return found if isinstance(found, dict) else None


def read_array(reply: str) -> list[Any] | None:
    """The one JSON array that a reply is, alone or in a code fence; None when it is anything else."""
    found = _read_json(reply, r"\[.*\]")
    return found if isinstance(found, list) else None


def _read_json(reply: str, form: str) -> Any:
    match = re.fullmatch(rf"(?:```(?:json)?\s*)?({form})(?:\s*```)?", reply.strip(), re.DOTALL)
    try:
        return json.loads(match[1]) if match else None
    except (ValueError, RecursionError):
        return None
