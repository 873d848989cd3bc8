"""What stops a command before it starts, and how errors are said."""

CANNOT_GO_ON = "agentic_video could not go on"
"""How the reason begins for which a training ends itself; the launcher shows such lines."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


class SetupError(Exception):
    """A command can't start, or go on; the message says what to set."""


class PluginTypeError(TypeError):
    """A function or a method that somebody wrote returned something of another type than it must."""


def must_return(whose: str, expected: str, got: object) -> PluginTypeError:
    """The error that says so.

    Args:
        whose: Names the function or the method.
        expected: What it must return, in words.
        got: What it returned.
    """
    return PluginTypeError(f"{whose} must return {expected}, got {type(got).__name__}")


def one_line(error: BaseException | str) -> str:
    """An error's message with its line breaks as spaces."""
    return " ".join(str(error).split())
