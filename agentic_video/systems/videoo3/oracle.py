"""Video-o3's oracle: looks at the seconds around the event, then answers; answers at once where the overview tells."""

from agentic_video.grounding.answer import read_intervals
from agentic_video.systems.base import EpisodeView
from agentic_video.types.row import INTERVAL_TYPES

TAGS = ("<grounding>", "</grounding>")
"""Tokens that the tiny model's tokenizer has for this system, in addition to those for all systems."""


def turns(view: EpisodeView, aim: float | None, word: str, letter: str, seen: str = "") -> tuple[str, ...]:
    """See :mod:`agentic_video.toyworld.oracles`."""
    told = word if view.qa.answer_type not in INTERVAL_TYPES else segment_text(word)
    answer = f"<think>{seen or f'it is {word}'}</think><answer>{told}</answer>"
    if aim is None:
        return (answer,)
    second = int(aim)
    # What came first is over by the event's middle.
    start = second - 1 if view.qa.extra.get("kind") == "order" else second
    call = f'{{"temporal_segment": [{start}, {second + 1}], "sampling_strategy": "fine"}}'
    return (f"<think>{seen or 'look near '}{second}</think><grounding>{call}</grounding>", answer)


def segment_text(interval: str) -> str:
    """An interval as rows that ask for a segment want it answered."""
    ((start, end),) = read_intervals(interval)
    return f'{{"temporal_segment": [{start:g}, {end:g}]}}'
