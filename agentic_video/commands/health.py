"""A line of ``agentic-video doctor``."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HealthCheck:
    """One line of the report: a remedy where something is missing, a note where nothing has to be done."""

    name: str
    value: str
    remedy: str = ""
    note: str = ""
