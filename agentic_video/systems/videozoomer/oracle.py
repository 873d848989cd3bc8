"""VideoZoomer: zooms where the event is, then answers; answers at once where the overview tells."""

from agentic_video.systems.base import EpisodeView

ZOOM_FPS = 4
"""Over the second that begins with the event's middle that is four frames, the first two within the event."""


def turns(view: EpisodeView, aim: float | None, word: str, letter: str, seen: str = "") -> tuple[str, ...]:
    """See :mod:`agentic_video.toyworld.oracles`."""
    answer = f"<think>{seen or f'it is {word}'}</think><answer>{word}</answer>"
    if aim is None:
        return (answer,)
    second = int(aim)
    # What came first is over by the event's middle.
    start = second - 1 if view.qa.extra.get("kind") == "order" else second
    call = f'{{"segment": [{start}, {second + 1}], "fps": {ZOOM_FPS}}}'
    return (f"<think>{seen or 'look near '}{second}</think><video_zoom>{call}</video_zoom>", answer)
