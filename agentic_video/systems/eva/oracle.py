"""EVA's oracle."""

from agentic_video.systems.base import EpisodeView
from agentic_video.systems.eva.grammar import shown_seconds

FRAMES = 4
"""Frames of a look: over two seconds, the middle two of them lie within the event."""


def select_text(thought: str, start: int, end: int) -> str:
    """A turn that selects frames from one whole second to another."""
    call = f'{{"start_time": {start}, "end_time": {end}, "nframes": {FRAMES}, "resize": 1}}'
    return f'<think>{thought}</think><tool_call>{{"tool": "frame_select", "arguments": {call}}}</tool_call>'


def answer_text(word: str, letter: str, options: bool, seen: str = "") -> str:
    """A turn that answers: with the option's letter, or in words where there are no options."""
    if options:
        return f"<think>{seen or f'it is {word}'}</think><answer>{word}</answer>"
    return f"<think>{seen or word}</think><answer>it is {word}</answer>"


def turns(view: EpisodeView, aim: float | None, word: str, letter: str, seen: str = "") -> tuple[str, ...]:
    """An episode's turns: looks around a second, or, as EVA starts without frames, over the whole video."""
    if aim is None:
        look = select_text("look at all", 0, shown_seconds(view.video.info.duration))
    else:
        second = int(aim)
        look = select_text(f"{seen or 'look near '}{second}", second - 1, second + 1)
    return look, answer_text(word, letter, bool(view.qa.options), seen)
