"""Values that must be one of a few."""

from collections.abc import Collection


def check_choice(name: str, value: str, allowed: Collection[str]) -> None:
    """Make sure that a config's value is one of those that there are.

    Raises:
        ValueError: It isn't; the message names the key.
    """
    if value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
