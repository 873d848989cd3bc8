"""FrameThinker's oracle: looks the second's frame up, chooses the second before and after it, answers."""

from agentic_video.systems.base import EpisodeView


def turns(view: EpisodeView, aim: float | None, word: str, letter: str) -> tuple[str, ...]:
    """The texts of an episode.

    Args:
        view: The episode before its first turn.
        aim: Second to look around; None answers without looking.
        word: Text of the option to answer.
        letter: Its letter.
    """
    answer = f"<think>it is {word}</think><action>output answer: {word}</action>"
    if aim is None:
        return (answer,)
    second, rate = int(aim), round(view.video.info.fps)
    clock = f"{second // 60:02d}:{second % 60:02d}"
    start, end = (second - 1) * rate, (second + 1) * rate
    return (
        f"<think>when is {clock}</think><action>get frame number at time {clock}</action>",
        f"<think>look between {start} and {end}</think><action>choose frames between {start} and {end}</action>",
        answer,
    )
