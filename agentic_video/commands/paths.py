"""Files, folders and models as options take them, for :mod:`argparse`: with the home folder for ``~``, which a shell
leaves as it is in ``--out=~/folder``."""

import argparse
import os
from pathlib import Path

from agentic_video.utils.environment import file_in_the_way


def path(text: str) -> Path:
    """A file or a folder; none for an empty text, such as a shell's variable that isn't set."""
    if not text:
        raise argparse.ArgumentTypeError("expected a file or a folder, got ''; name one (. is this folder)")
    return Path(os.path.expanduser(text))


def folder_to_write(text: str) -> Path:
    """A folder that may have to be made.

    Raises:
        argparse.ArgumentTypeError: A file is in its place, or in that of a folder above it.
    """
    folder = path(text)
    return _makeable(folder, folder, "name a folder")


def file_to_write(text: str) -> Path:
    """A file whose folder may have to be made.

    Raises:
        argparse.ArgumentTypeError: A folder is in its place, or a file in that of a folder above it.
    """
    file = path(text)
    if file.is_dir():
        raise argparse.ArgumentTypeError(f"{file}: a folder; name a file")
    return _makeable(file, file.parent, "choose another folder")


def _makeable(named: Path, folder: Path, remedy: str) -> Path:
    if blocked := file_in_the_way(folder):
        what = "a file" if blocked == named else f"{blocked} is a file"
        raise argparse.ArgumentTypeError(f"{named}: {what}; {remedy}")
    return named


def model(text: str) -> str:
    """The folder of a checkpoint; a name on a hub and an address as they are."""
    return os.path.expanduser(text)
