"""The turn machine: it plays episodes, and knows no system by name and no engine."""

from collections.abc import Callable
from dataclasses import replace

from agentic_video.rollout.policy import EngineError, Policy, until_stop
from agentic_video.systems.base import EpisodeView, System
from agentic_video.tools.base import Retriever, Video
from agentic_video.types.action import Answer, Calls, Illegal
from agentic_video.types.message import Message, frames_of
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn, record_messages, record_parts
from agentic_video.video.errors import VideoError
from agentic_video.video.source import FrameSource


async def play(
    system: System,
    policy: Policy,
    qa: VideoQA,
    source: FrameSource,
    retriever: Retriever | None = None,
    *,
    rollout_index: int = 0,
) -> Trajectory:
    """Play one episode to its end.

    Nothing that the model says makes this raise: every episode ends with a recorded reason. An observation that
    would break the token or image budget is never appended.

    Args:
        system: The way of watching.
        policy: Says the turns.
        qa: The question and its video.
        source: Where frames come from.
        retriever: Finds frames by text, for systems that do.
        rollout_index: Number of this rollout in its group.

    Raises:
        VideoError: The video itself, or its overview, can't be read: there is nothing to play.
    """
    video = await Video.open(qa.video, source, retriever)
    view = EpisodeView(qa=qa, video=video, rollout_index=rollout_index)
    opening = await system.opening(view)
    turns: list[Turn] = []

    def finish(end: EndReason, error: str = "") -> Trajectory:
        return Trajectory(
            qa_id=qa.id,
            system=system.name,
            opening=record_messages(opening),
            turns=tuple(turns),
            end=end,
            error=error,
            rollout_index=rollout_index,
            num_tokens=policy.num_tokens,
        )

    images = _count_images(opening)
    if images > system.max_images:
        return finish(EndReason.IMAGE_BUDGET, f"the opening holds {images} images, at most {system.max_images} fit")
    if not await policy.begin(opening):
        return finish(EndReason.TOKEN_BUDGET, "the opening doesn't fit the prompt's token budget")

    while True:
        try:
            said = await policy.say(view)
        except EngineError as error:
            return finish(EndReason.ENGINE_ERROR, str(error))
        # Here for every system and every policy: what follows a stop text is neither read nor graded nor recorded.
        text = until_stop(said.text, system.stop)
        action = Illegal("a token that only the environment may write") if said.forbidden else system.parse(text)
        turn = Turn(text, action, said.num_tokens, said.finished, token_ids=said.token_ids)
        turns.append(turn)
        view = replace(view, turns=tuple(turns))

        if isinstance(action, Answer):
            return finish(EndReason.ANSWER)
        if said.forbidden:
            turns[-1] = replace(turn, illegal_calls=1)
            return finish(EndReason.ILLEGAL, action.reason if isinstance(action, Illegal) else "")
        if isinstance(action, Illegal) and not said.finished:
            turns[-1] = replace(turn, illegal_calls=1)
            return finish(EndReason.TOKEN_BUDGET, "the turn was cut at its token limit")
        if isinstance(action, Calls) and len(turns) >= system.max_turns:
            return finish(EndReason.TURN_LIMIT)
        try:
            observation = await system.observe(action, view)
        except VideoError as error:
            return finish(EndReason.TOOL_ERROR, str(error))
        if observation is None:
            turns[-1] = replace(turn, illegal_calls=max(1, turn.illegal_calls))
            return finish(EndReason.ILLEGAL, action.reason if isinstance(action, Illegal) else "illegal call")
        turns[-1] = replace(turn, legal_calls=observation.legal_calls, illegal_calls=observation.illegal_calls)
        if len(turns) >= system.max_turns:
            return finish(EndReason.TURN_LIMIT)
        images = len(observation.frames) + observation.unread_images + (images if system.context == "all" else 0)
        if images > system.max_images:
            return finish(EndReason.IMAGE_BUDGET, f"{images} images, at most {system.max_images} fit")
        if not await policy.show(observation.parts):
            return finish(EndReason.TOKEN_BUDGET, "the observation doesn't fit the token budget")
        turns[-1] = replace(turns[-1], observation=record_parts(observation.parts))
        view = replace(view, turns=tuple(turns))


async def play_attempts(
    system: System,
    make_policy: Callable[[System], Policy],
    qa: VideoQA,
    source: FrameSource,
    retriever: Retriever | None = None,
    *,
    rollout_index: int = 0,
) -> tuple[Trajectory, ...]:
    """Play a question as in evaluation: again for as long as the system asks for it (see :meth:`System.retry`).

    Args:
        make_policy: A new policy for each attempt.

    Returns:
        All attempts in order; the last one counts.

    Raises:
        VideoError: The video itself, or its overview, can't be read.
    """
    attempts: list[Trajectory] = []
    current: System | None = system
    while current is not None:
        policy = make_policy(current)
        attempts.append(await play(current, policy, qa, source, retriever, rollout_index=rollout_index))
        current = system.retry(attempts)
    return tuple(attempts)


def _count_images(messages: tuple[Message, ...]) -> int:
    return sum(len(frames_of(message.parts)) for message in messages)
