"""A patch of an installed package, as data."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Seam:
    """One patch: a ``module:function`` of ours that is called with a module once that has been imported.

    ``sources`` are digests of the definitions that it replaces or relies on
    (:func:`agentic_video.training.seams.table.digest`).
    """

    patch: str
    module: str
    sources: Mapping[str, str]
    reason: str
    issue: str = "none found"
    cpu_only: bool = False
