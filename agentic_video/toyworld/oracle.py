"""Scripted policies that know the answer: they read the row's ``extra_info``, one for each system's grammar."""

import math
from dataclasses import dataclass

from agentic_video.systems.base import EpisodeView

ZOOM_FPS = 2
ZOOM_SECONDS = 2
"""Two frames a second over two seconds: four frames, the middle two within the event."""


@dataclass(frozen=True)
class Script:
    """What is said in an episode, turn by turn."""

    turns: tuple[str, ...]

    def __call__(self, view: EpisodeView) -> str:
        return self.turns[min(len(view.turns), len(self.turns) - 1)]


def answer_text(word: str, letter: str) -> str:
    """A turn that answers. Naming the option's word before its letter lets a small model look the letter up."""
    return f"<think>it is {word} {letter}</think><answer>{letter}</answer>"


def zoom_text(second: int) -> str:
    """A turn that looks at the two seconds around a second."""
    start, end = second - ZOOM_SECONDS // 2, second + ZOOM_SECONDS // 2
    call = f'<video_zoom>{{"segment": [{start}, {end}], "fps": {ZOOM_FPS}}}</video_zoom>'
    return f"<think>look near {second}</think>{call}"


def videozoomer(view: EpisodeView) -> str:
    """Plays VideoZoomer: zooms where the event is, then answers; answers at once where the overview tells."""
    extra = view.qa.extra
    answer = answer_text(str(extra["answer_text"]), view.qa.answer)
    if extra["event_time"] is None:
        return answer
    return Script((zoom_text(math.floor(extra["event_time"])), answer))(view)
