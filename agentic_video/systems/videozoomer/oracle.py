"""VideoZoomer: zooms where the event is, then answers; answers at once where the overview tells."""

from agentic_video.systems.base import EpisodeView

ZOOM_FPS = 4
"""Over one second that is four frames, the first two within the event."""


def turns(view: EpisodeView, aim: float | None, word: str, letter: str) -> tuple[str, ...]:
    """See :mod:`agentic_video.toyworld.oracles`."""
    answer = f"<think>it is {word}</think><answer>{word}</answer>"
    if aim is None:
        return (answer,)
    second = int(aim)
    call = f'{{"segment": [{second}, {second + 1}], "fps": {ZOOM_FPS}}}'
    return (f"<think>look near {second}</think><video_zoom>{call}</video_zoom>", answer)
