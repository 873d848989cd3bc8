"""A teacher with guidance in its instructions; records keep the system's own prompt."""

from collections.abc import Sequence

from agentic_video.rollout.policy import Policy, Utterance
from agentic_video.systems.base import EpisodeView
from agentic_video.types.message import AsideRequest, Message, Part
from agentic_video.types.trajectory import Aside


class GuidedPolicy:
    """A :class:`~agentic_video.rollout.policy.Policy` that adds a text to the first system message."""

    def __init__(self, teacher: Policy, guidance: str):
        self._teacher, self._guidance = teacher, guidance

    @property
    def num_tokens(self) -> int:
        return self._teacher.num_tokens

    async def begin(self, messages: Sequence[Message]) -> bool:
        if messages and messages[0].role == "system":
            first = Message("system", (*messages[0].parts, f"\n\n{self._guidance}"))
            return await self._teacher.begin([first, *messages[1:]])
        return await self._teacher.begin([Message("system", (self._guidance,)), *messages])

    async def say(self, view: EpisodeView) -> Utterance:
        return await self._teacher.say(view)

    async def show(self, parts: Sequence[Part]) -> bool:
        return await self._teacher.show(parts)

    async def ask(self, request: AsideRequest) -> Aside:
        return await self._teacher.ask(request)
