"""Errors that stop a command before it starts, and how they are shown."""

import sysconfig
import traceback
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path

CANNOT_CONTINUE = "agentic_video could not continue"
"""Start of the line with which a training ends itself; the launcher shows such lines."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

_PACKAGE = Path(__file__).parents[1]
_PYTHON = (Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("platstdlib")))


class SetupError(Exception):
    """A command can't start or continue; one line names the key, row or file, and the remedy.

    Attributes:
        key: The config key, option, row or file to change; empty where the error isn't about one.
    """

    def __init__(self, message: str = "", *, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class PluginTypeError(TypeError):
    """A plugin's function returned a value of the wrong type."""


def return_type_error(function: str, expected: str, got: object) -> PluginTypeError:
    """Make the error for a plugin's function that returned a value of the wrong type."""
    return PluginTypeError(f"{function} must return {expected}, got {type(got).__name__}")


def one_line(error: BaseException | str) -> str:
    """An error's message with its line breaks as spaces."""
    return " ".join(str(error).split())


def described(error: BaseException) -> str:
    """An error's type and message, and the line of a user's code that raised it."""
    said = f"{type(error).__name__}: {error}"
    if type(error).__module__.partition(".")[0] == _PACKAGE.name:  # says itself what is wrong
        return said
    called = [(Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    theirs = [f"{file.name} line {line}" for file, line in called if _is_own(file)]
    return f"{said} ({theirs[-1]})" if theirs else said


def _is_own(file: Path) -> bool:
    """Return True for a file of the user: neither of this package, nor of Python or an installed package."""
    if file.suffix != ".py" or {"site-packages", "dist-packages"}.intersection(file.parts):
        return False
    return not any(file.is_relative_to(folder) for folder in (_PACKAGE, *_PYTHON))


def did_you_mean(word: str, known: Collection[str], alike: float = 0.6) -> str:
    """Question about the known word most like an unknown one, with a space after it; empty without one.

    Args:
        alike: Least similarity, at most 1.
    """
    close = get_close_matches(word, known, n=1, cutoff=alike)
    return f"did you mean {close[0]}? " if close else ""
