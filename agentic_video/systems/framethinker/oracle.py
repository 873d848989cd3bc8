"""FrameThinker's oracle: looks the second's frame up, chooses the second before and after it, answers."""

from agentic_video.systems.base import EpisodeView
from agentic_video.utils.units import clock


def turns(view: EpisodeView, aim: float | None, word: str, letter: str, seen: str = "") -> tuple[str, ...]:
    """See :mod:`agentic_video.toyworld.oracles`; with ``seen`` no time is looked up, as none was named."""
    answer = f"<think>{seen or f'it is {word}'}</think><action>output answer: {word}</action>"
    if aim is None:
        return (answer,)
    second, rate = int(aim), round(view.video.info.fps)
    start, end = (second - 1) * rate, (second + 1) * rate
    if seen:
        thought = f"{seen}{second} between {start} and {end}"
        return f"<think>{thought}</think><action>choose frames between {start} and {end}</action>", answer
    return (
        f"<think>when is {clock(second)}</think><action>get frame number at time {clock(second)}</action>",
        f"<think>look between {start} and {end}</think><action>choose frames between {start} and {end}</action>",
        answer,
    )
