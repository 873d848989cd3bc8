"""Questions of temporal grounding, for published sets that have sentences only."""


def moment_question(sentence: str) -> str:
    """The question for the one moment of a sentence, with the form of its answer."""
    return (
        f"{_asked(sentence)}\n"
        "Answer with the start and the end of that moment in seconds, written as START - END, and nothing else."
    )


def moments_question(sentence: str) -> str:
    """The question for all moments of a sentence, with the form of its answer."""
    return (
        f"{_asked(sentence)} There may be several such moments.\n"
        "Answer with the start and the end of each in seconds, written as START - END, START - END, and nothing else; "
        "begin with the one that you are surest of."
    )


def _asked(sentence: str) -> str:
    return f'When in the video does this happen: "{" ".join(sentence.split())}"?'
