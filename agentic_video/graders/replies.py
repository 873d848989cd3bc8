"""Texts to and from other models: requests without a template's special tokens, replies read as JSON."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_MARKS = re.compile(
    r"<(?=[|\uff5c]|/?(?:s|bos|eos|pad|start_of_turn|end_of_turn|image|video|img|image_pad|IMG_CONTEXT)>)"
    r"|\[(?=/?(?:INST|IMG|SYSTEM_PROMPT)\])"
)
"""Where a special token begins: Qwen's, Llama's and Phi's ``<|...|>``, DeepSeek's with wide bars, Gemma's and Mistral's
words, and the placeholders of images."""


def plain(text: str) -> str:
    """Break up special tokens of chat templates: a server would read them as such."""
    return _MARKS.sub(lambda found: found[0] + " ", text)


def plain_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of the chat completions API with plain texts; adjacent texts become one, as templates join them."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": plain(content)}
    if not isinstance(content, Sequence):
        return dict(message)
    parts: list[dict[str, Any]] = []
    for part in content:
        if part.get("type") != "text":
            parts.append(part)
        elif parts and parts[-1]["type"] == "text":
            parts[-1] = {"type": "text", "text": parts[-1]["text"] + part["text"]}
        else:
            parts.append(part)
    parts = [{"type": "text", "text": plain(part["text"])} if part["type"] == "text" else part for part in parts]
    return {**message, "content": parts}


def spoken(text: str) -> str:
    """A reply without the thoughts before it."""
    return text.rpartition("</think>")[2].strip()


def read_object(reply: str) -> dict[str, Any] | None:
    """Read a reply that is one JSON object, perhaps in a code fence; None for anything else."""
    found = _read_json(reply, r"\{.*\}")
    return found if isinstance(found, dict) else None


def read_array(reply: str) -> list[Any] | None:
    """Read a reply that is one JSON array, perhaps in a code fence; None for anything else."""
    found = _read_json(reply, r"\[.*\]")
    return found if isinstance(found, list) else None


def _read_json(reply: str, form: str) -> Any:
    match = re.fullmatch(rf"(?:```(?:json)?\s*)?({form})(?:\s*```)?", reply.strip(), re.DOTALL)
    try:
        return json.loads(match[1]) if match else None
    except (ValueError, RecursionError):
        return None
