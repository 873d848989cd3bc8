"""TimeSearch-R: searches the whole video for a colour that the question names, a stretch of a second that it names by
time alone; answers at once where the overview tells."""

from agentic_video.systems.base import EpisodeView
from agentic_video.types.message import AsideRequest
from agentic_video.types.row import VideoQA


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


def asides(qa: VideoQA, request: AsideRequest) -> str:
    """The self-verification's reply: the answer where a found frame shows the event, else that it wasn't seen."""
    time, half = qa.extra.get("event_time"), qa.extra.get("event_seconds", 0.0) / 2
    if time is None or not any(abs(frame.time - time) < half for frame in request.frames):
        return "<think>not seen</think>"
    word = qa.extra["answer_text"]
    return f"<think>it is {word}</think><answer>{word}</answer>"
