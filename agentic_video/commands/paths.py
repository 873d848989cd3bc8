"""Files, folders and models as options take them, for :mod:`argparse`: with the home folder for ``~``, which a shell
leaves as it is in ``--out=~/folder``."""

import os
from pathlib import Path


def path(text: str) -> Path:
    """A file or a folder."""
    return Path(os.path.expanduser(text))


def model(text: str) -> str:
    """The folder of a checkpoint; a name on a hub and an address as they are."""
    return os.path.expanduser(text)
