"""Files, folders and models as options take them, for :mod:`argparse`: with the home folder for ``~``, which a shell
leaves as it is in ``--out=~/folder``."""

import argparse
import os
from pathlib import Path


def path(text: str) -> Path:
    """A file or a folder; none for an empty text, such as a shell's variable that isn't set."""
    if not text:
        raise argparse.ArgumentTypeError("expected a file or a folder, got ''; name one (. is this folder)")
    return Path(os.path.expanduser(text))


def model(text: str) -> str:
    """The folder of a checkpoint; a name on a hub and an address as they are."""
    return os.path.expanduser(text)
