"""FrameThinker's grammar: a thought, then an action."""

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"


ACTION_OPEN, ACTION_CLOSE = "<action>", "</action>"


def split_turn(text: str) -> tuple[str, str] | None:
    """The last action of a turn, and the last finished thought before it.

    Returns:
        (thought, action), or None when there is no action after a thought.
    """
    action_end = text.rfind(ACTION_CLOSE)
    action_start = text.rfind(ACTION_OPEN, 0, max(action_end, 0))
    think_end = text.rfind(THINK_CLOSE, 0, max(action_start, 0))
    think_start = text.rfind(THINK_OPEN, 0, max(think_end, 0))
    if think_start < 0:
        return None
    return text[think_start + len(THINK_OPEN) : think_end], text[action_start + len(ACTION_OPEN) : action_end]
