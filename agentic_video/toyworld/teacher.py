"""A scripted teacher for machines without a model: it writes a system's grammar, and knows the answers."""

from hashlib import blake2b

from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.model import ModelSpec
from agentic_video.rollout.policy import Policy
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import EpisodeView, System
from agentic_video.toyworld.oracles import oracle_policy, turns_of
from agentic_video.types.row import LETTERS, VideoQA

NAME = "scripted"
"""Its name in records; ``scripted:module`` if an oracle is named."""
MARGIN = 2
"""Seconds at each end of a video where it doesn't look: a look reaches a second to both sides."""


class ScriptedTeacher(Backend):
    """Plays the oracle of a system (:mod:`agentic_video.toyworld.oracles`) on any rows.

    On the synthetic world it looks where the event is. Other rows don't name a time: there it looks at a place drawn
    from the question's name, and answers as the row does. Such episodes teach the grammar, not where to look."""

    def __init__(self, spec: ModelSpec, visual_token_side: int):
        self.visual_token_side = visual_token_side
        self.oracle = spec.model.partition(":")[2]

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        turns = turns_of(system, self.oracle)

        def say(view: EpisodeView) -> str:
            said = turns(view, aim_of(view), answer_word(view.qa), view.qa.answer)
            return said[min(len(view.turns), len(said) - 1)]

        return oracle_policy(turns, say)


def teacher_name(system: System, module: str = "") -> str:
    """Name of the scripted teacher of a system, which must have an oracle."""
    turns_of(system, module)
    return f"{NAME}:{module}" if module else NAME


def aim_of(view: EpisodeView) -> int | None:
    """Second to look around; None to answer from the first view."""
    if "event_time" in view.qa.extra:
        time = view.qa.extra["event_time"]
        return None if time is None else int(time)
    places = int(view.video.info.duration) - 2 * MARGIN
    if places < 1:
        return None
    drawn = int.from_bytes(blake2b(f"{view.qa.data_source}\n{view.qa.id}".encode(), digest_size=4).digest())
    return MARGIN + drawn % places


def answer_word(qa: VideoQA) -> str:
    """The right answer in words."""
    return qa.options[LETTERS.index(qa.answer)] if qa.options and qa.answer in LETTERS else qa.answer
