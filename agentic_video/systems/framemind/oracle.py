"""FrameMind: looks where the event is, with one tool or with both, then answers; answers at once where the overview
tells."""

from agentic_video.systems.base import EpisodeView


def turns(view: EpisodeView, aim: float | None, word: str, letter: str, seen: str = "") -> tuple[str, ...]:
    """See :mod:`agentic_video.toyworld.oracles`. Even seconds are looked at with ``FrameAt``, odd ones with both tools,
    so that both are learnt; what must be searched with ``FrameAt`` alone."""
    answer = f"<think>{seen or f'it is {word}'}</think><answer>{word}</answer>"
    if aim is None:
        return (answer,)
    second = int(aim)
    calls = f'<tool_call>{{"name": "FrameAt", "arguments": {{"t": {second}}}}}</tool_call>'
    if second % 2 and not seen:
        clip = f'{{"t_start": {second - 1}, "t_end": {second + 1}}}'
        calls += f'<tool_call>{{"name": "VideoClip", "arguments": {clip}}}</tool_call>'
    return (f"<think>{seen or 'look near '}{second}</think>{calls}<turn_sum>look {second}</turn_sum>", answer)
