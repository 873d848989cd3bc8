"""What stops a command before it starts."""


class SetupError(Exception):
    """A command can't start, or go on; the message says what to set."""
