"""The files that a system's constants name: its instructions may be the user's own."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentic_video.systems.prompts import packaged_prompts


def named_files(constants: Any) -> dict[str, str]:
    """The files that plain data names, wherever in it: a digest of each one's content by its path.

    A name of a packaged template is no path (:func:`~agentic_video.systems.prompts.load_prompt`).
    """
    return {
        text: hashlib.sha256(Path(text).read_bytes()).hexdigest()[:16]
        for text in _texts(constants)
        if text not in packaged_prompts() and os.path.isfile(text)
    }


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
