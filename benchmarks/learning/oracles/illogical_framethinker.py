"""FrameThinker's oracle, but some thoughts name other frames than the action that follows chooses.

The frames that are shown are the right ones all the same: accuracy alone doesn't punish such a turn, the consistency
check (fidelity) does.
"""

import re

from agentic_video.systems.base import EpisodeView
from agentic_video.systems.framethinker import oracle as framethinker
from benchmarks.learning.oracles import draw

_THOUGHT = re.compile(r"(<think>look between )(\d+) and (\d+)(</think>)", re.ASCII)


def turns(view: EpisodeView, aim: float | None, word: str, letter: str) -> tuple[str, ...]:
    """The texts of an episode; see :func:`agentic_video.systems.framethinker.oracle.turns`."""
    said = framethinker.turns(view, aim, word, letter)
    drawn = draw(view)
    if aim is None or drawn is None:
        return said
    seconds, rate = int(view.video.info.duration), round(view.video.info.fps)
    # Any second of the video but those around the aim.
    start = (int(aim) + 3 + drawn % max(1, seconds - 6)) % max(1, seconds - 2) * rate
    return tuple(_THOUGHT.sub(rf"\g<1>{start} and {start + 2 * rate}\g<4>", text) for text in said)
