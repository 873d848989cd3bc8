"""TimeSearch-R: searches the whole video for a colour that the question names, a stretch of a second that it names by
time alone; answers at once where the overview tells."""

from agentic_video.systems.base import EpisodeView


def turns(view: EpisodeView, aim: float | None, word: str, letter: str, seen: str = "") -> tuple[str, ...]:
    """See :mod:`agentic_video.toyworld.oracles`."""
    answer = f"<think>{seen or f'it is {word}'}</think><answer>{word}</answer>"
    if aim is None:
        return (answer,)
    if view.qa.extra.get("kind") == "beside":
        named = view.qa.extra["beside"]
        return (call(f"find {named}", f'"query": "{named}"'), answer)
    second = int(aim)
    # What came first is over by the event's middle.
    start = second - 1 if view.qa.extra.get("kind") == "order" else second
    return (call(f"{seen or 'look near '}{second}", f'"start_time": {start}, "end_time": {second + 1}'), answer)


def call(thought: str, arguments: str) -> str:
    """A turn that searches."""
    return (
        f'<think>{thought}</think><tool_call>{{"name": "seek_video_frames", "arguments": {{{arguments}}}}}</tool_call>'
    )
