"""Files named by a system's constants: a user's prompts may be files."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentic_video.systems.prompts import packaged_prompts


def named_files(constants: Any) -> dict[str, str]:
    """Digests by path of the files that plain data names; names of packaged templates are no paths."""
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
