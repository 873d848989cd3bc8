"""What stops a command before it starts, and how errors are said."""

CANNOT_GO_ON = "agentic_video could not go on"
"""How the reason begins for which a training ends itself; the launcher shows such lines."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


class SetupError(Exception):
    """A command can't start, or go on; the message says what to set."""


def one_line(error: BaseException | str) -> str:
    """An error's message with its line breaks as spaces."""
    return " ".join(str(error).split())
