"""Texts without a chat template's own marks: what others wrote must not become turns or images of a prompt."""

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
    """A text in which no special token of a chat template is left: a server would read it as one."""
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
