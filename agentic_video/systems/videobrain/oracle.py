"""VideoBrain: searches for a colour that the question names, samples around a second that it names, else answers."""

from agentic_video.systems.base import EpisodeView

BEYOND = 999
"""A last frame that no synthetic video has: it is clipped to the video, and is always the same to write."""


def turns(view: EpisodeView, aim: float | None, word: str, letter: str, seen: str = "") -> tuple[str, ...]:
    """See :mod:`agentic_video.toyworld.oracles`."""
    answer = f"<thinking>{seen or f'it is {word}'}</thinking><answer>{word}</answer>"
    if aim is None:
        return (answer,)
    if view.qa.extra.get("kind") == "beside":
        named = view.qa.extra["beside"]
        return (
            call(f"find {named}", "clip_sample", f'"start_frame": 0, "end_frame": {BEYOND}, "prompt": "{named}"'),
            answer,
        )
    second, rate = int(aim), round(view.video.info.fps)
    start, end = rate * (second - 1), rate * (second + 1)
    thought = f"{seen or 'look near '}{second}"
    return (call(thought, "uniform_sample", f'"start_frame": {start}, "end_frame": {end}'), answer)


def call(thought: str, name: str, arguments: str) -> str:
    """A turn that calls a tool."""
    return f'<thinking>{thought}</thinking><tool_call>{{"name": "{name}", "arguments": {{{arguments}}}}}</tool_call>'
