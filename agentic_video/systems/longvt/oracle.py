"""LongVT: crops the two seconds around the event, then answers; answers at once where the first view tells."""

from agentic_video.systems.base import EpisodeView


def turns(view: EpisodeView, aim: float | None, word: str, letter: str, seen: str = "") -> tuple[str, ...]:
    """See :mod:`agentic_video.toyworld.oracles`."""
    answer = f"<think>{seen or f'it is {word}'}</think><answer>{word}</answer>"
    if aim is None:
        return (answer,)
    second = int(aim)
    call = f'{{"name": "crop_video", "arguments": {{"start_time": {second - 1}, "end_time": {second + 1}}}}}'
    return (f"<think>{seen or 'look near '}{second}</think><tool_call>{call}</tool_call>", answer)
