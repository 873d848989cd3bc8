"""Oracles for cold starts that have a fault for GRPO to find: ``<fault>_<system>.py``."""

from zlib import crc32

from agentic_video.systems.base import EpisodeView
from agentic_video.toyworld.oracles import Turns

SHARE = 40
"""Percent of the questions whose demonstration has the fault."""


def draw(view: EpisodeView) -> int | None:
    """A number that depends on the question alone; None for a question that is demonstrated without fault."""
    hashed = crc32(view.qa.id.encode())
    return hashed // 100 if hashed % 100 < SHARE else None


def restless(turns: Turns) -> Turns:
    """An oracle that looks at some second even where the first view is enough, and then answers as rightly."""

    def wander(view: EpisodeView, aim: float | None, word: str, letter: str, seen: str = "") -> tuple[str, ...]:
        if aim is None and view.qa.extra["event_time"] is None and (drawn := draw(view)) is not None:
            # Two digits, and within the video.
            aim = 11 + drawn % max(1, int(view.video.info.duration) - 13)
        return turns(view, aim, word, letter, seen)

    return wander
