"""VideoZoomer: zooms where the event is, then answers; answers at once where the overview tells."""

from agentic_video.systems.base import EpisodeView

ZOOM_FPS = 4
"""Over the second that ends with the event's middle that is four frames, the last two within the event."""


def turns(view: EpisodeView, aim: float | None, word: str, letter: str) -> tuple[str, ...]:
    """See :mod:`agentic_video.toyworld.oracles`."""
    answer = f"<think>it is {word}</think><answer>{word}</answer>"
    if aim is None:
        return (answer,)
    second = int(aim)
    # What comes last comes after the event's middle; what a mark points at isn't at a whole second.
    end = second + 1 if view.qa.extra.get("kind") in ("order", "marker") else second
    call = f'{{"segment": [{second - 1}, {end}], "fps": {ZOOM_FPS}}}'
    return (f"<think>look near {second}</think><video_zoom>{call}</video_zoom>", answer)
