"""Keys of services, handed to a job's processes in a file that only the user can read."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

SECRETS_FILE = "AGENTIC_VIDEO_SECRETS_FILE"
"""Environment variable that names a file of lines ``NAME=value``. The launcher writes one for a job on a Ray cluster; a
file of one's own can be named on the nodes instead."""


def written(values: Mapping[str, str]) -> str:
    """The text of such a file."""
    return "".join(f"{name}={json.dumps(value)}\n" for name, value in values.items())


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
