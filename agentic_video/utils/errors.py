"""What stops a command before it starts."""


class SetupError(Exception):
    """A job can't start; the message says what to set."""
