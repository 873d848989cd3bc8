"""ParaVT: asks for the stretch where the event is, or for two at once, then answers by what its sub-agents say; answers
at once where the overview tells."""

from agentic_video.systems.base import EpisodeView
from agentic_video.types.message import AsideRequest
from agentic_video.types.row import VideoQA

NOTHING = "nothing flashes"
"""A sub-agent's reply for a stretch without the event."""


def crop(start: int, end: int) -> str:
    """A call."""
    arguments = f'{{"start_time": {start}, "end_time": {end}}}'
    return f'<tool_call>{{"name": "crop_video", "arguments": {arguments}}}</tool_call>'


def turns(view: EpisodeView, aim: float | None, word: str, letter: str, seen: str = "") -> tuple[str, ...]:
    """See :mod:`agentic_video.toyworld.oracles`. Around odd seconds two stretches are asked for at once, so that this
    is learnt too; what must be searched is asked for one by one."""
    answer = f"{seen or f'look, it is {word}'}</think><answer>{word}</answer>"
    if aim is None:
        return (answer,)
    second = int(aim)
    calls = crop(second, second + 1)
    if second % 2 and not seen:
        calls += crop(second + 2, second + 3)
    return (f"{seen or 'look near '}{second}</think>{calls}", answer)


def asides(qa: VideoQA, request: AsideRequest) -> str:
    """A sub-agent's reply: the event, a sign that points to it, or nothing."""
    time = qa.extra.get("event_time")
    if time is None:
        return NOTHING
    shown = [frame.time for frame in request.frames]
    if any(abs(frame_time - time) < qa.extra["event_seconds"] / 2 for frame_time in shown):
        return f"it is {qa.extra['beside' if qa.extra['kind'] == 'span' else 'answer_text']}"
    if qa.extra["kind"] in ("search", "span"):
        return "later" if shown[0] < time else "earlier"
    return NOTHING
