"""Plays a benchmark's questions, each exactly once, whatever is killed in between.

Every finished episode is one line of a journal, on disk before the next one counts. A run that is started again reads
the journals and plays what is missing. A question that can't be played (an unreadable video, a server that is gone) is
no episode: it is listed, and tried again next time."""

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from agentic_video.evaluation.backends.base import Backend, usage_of
from agentic_video.evaluation.context import EvalContext, make_graders
from agentic_video.evaluation.plan import EvalPlan
from agentic_video.evaluation.pool import run_pool
from agentic_video.evaluation.results import REVISION, Failure, append, journal, key_of, same_gold
from agentic_video.evaluation.suites import JUDGED
from agentic_video.graders.answer import match_choice
from agentic_video.graders.base import Graders
from agentic_video.graders.captions import VALUES as CAPTION_VALUES
from agentic_video.graders.captions import is_caption, score_caption, zero_caption
from agentic_video.graders.endpoint import EndpointError
from agentic_video.graders.judge import grade_answer
from agentic_video.rollout.chat_policy import Usage
from agentic_video.rollout.episode import play_attempts
from agentic_video.rollout.policy import EngineError, Policy
from agentic_video.systems.base import System
from agentic_video.systems.reward_function import SCORE_TIMEOUT, limited, plain_number
from agentic_video.tools.base import Retriever
from agentic_video.types.record import Record, RecordError
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import ClipRef, EndReason, Trajectory
from agentic_video.utils.errors import described
from agentic_video.video.source import FrameRequest
from agentic_video.video.store import FrameStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class QuestionResult:
    """A question's episodes and what they took."""

    attempts: tuple[Trajectory, ...]  # all of them; the last one counts
    usage: Usage  # tokens of all attempts
    seconds: float  # of all attempts


async def play_question(
    context: EvalContext, retriever: Retriever | None, qa: VideoQA, rollout_index: int = 0
) -> QuestionResult:
    """Play a question as in evaluation, with every attempt that the system asks for."""
    started = time.monotonic()
    policies: list[Policy] = []

    def make_policy(system: System) -> Policy:
        episode = json.dumps([*key_of(qa), len(policies)])
        policies.append(context.backend.policy(system, context.plan.limits, episode))
        return policies[-1]

    attempts = await play_attempts(
        context.plan.system, make_policy, qa, context.source, retriever, rollout_index=rollout_index
    )
    if attempts[-1].end is EndReason.ENGINE_ERROR:
        raise EngineError(attempts[-1].error)
    usage = sum((usage_of(policy) for policy in policies), Usage())
    return QuestionResult(attempts, usage, time.monotonic() - started)


async def play_one(context: EvalContext, retriever: Retriever | None, qa: VideoQA, rollout_index: int = 0) -> Record:
    """Play and grade a question."""
    played = await play_question(context, retriever, qa, rollout_index)
    trajectory = played.attempts[-1]
    rewards = {
        **await grades(context.plan.system, trajectory, qa, context.graders, context.plan.settings.reward.timeout),
        "turns": float(len(trajectory.turns)),
        "tool_calls": float(trajectory.tool_calls),
        "illegal_calls": float(trajectory.illegal_calls),
        "frames": float(len(trajectory.frames)),
        "visual_tokens": float(_visual_tokens(trajectory, context.backend)),
        "prompt_tokens": float(played.usage.prompt_tokens),
        "completion_tokens": float(played.usage.completion_tokens),
        "attempts": float(len(played.attempts)),
        **({"forced": float(trajectory.forced)} if context.plan.system.forced_answer else {}),
        "seconds": played.seconds,
        "video_seconds": (await context.source.serve(FrameRequest(qa.video))).info.duration,
    }
    return Record(qa, trajectory, rewards, context.plan.provenance)


GRADES = ("acc", "acc_robust", *CAPTION_VALUES)
"""Values that :func:`grades` may return."""


async def grades(
    system: System, trajectory: Trajectory, qa: VideoQA, graders: Graders, timeout: float = SCORE_TIMEOUT
) -> dict[str, float]:
    """Accuracies of an episode; one that isn't available is left out."""
    found: dict[str, float] = {}
    if qa.hidden:
        return found
    try:
        if is_caption(qa):
            found |= await grade_caption(trajectory.answer, qa, graders)
        elif qa.answer_type == "open_ended" and qa.data_source in JUDGED:
            found["acc"] = await grade_answer(trajectory.answer or None, qa, "robust", graders.judge)
        else:
            grade = await limited(system.grade, trajectory, qa, graders, timeout)
            found["acc"] = plain_number(f"{type(system).__name__}.grade", "an accuracy of", grade)
    except EndpointError as error:
        logger.info("row %s: not graded: %s", qa.id, error)
    if qa.answer_type == "multiple_choice":
        found["acc_robust"] = float(match_choice(trajectory.answer, qa, "robust"))
    return found


async def grade_caption(caption: str | None, qa: VideoQA, graders: Graders) -> dict[str, float]:
    """Score a caption by its benchmark's procedure; an episode without one scores 0."""
    if not caption or not caption.strip():
        return zero_caption(qa)
    if graders.judge is None:
        raise EndpointError(f"row {qa.id} asks for a caption: a judge is needed")
    return await score_caption(graders.judge, qa, caption)


def _visual_tokens(trajectory: Trajectory, backend: Backend) -> int:
    """The model's own count of visual tokens, where the backend knows the model."""
    if backend.chat_format is None:
        return visual_tokens(trajectory, backend.visual_token_side)
    return sum(map(backend.chat_format.visual_tokens, trajectory.visuals))


def visual_tokens(trajectory: Trajectory, side: int) -> int:
    """Visual tokens of all shown images and clips, a clip's frames two for one."""
    return sum(
        (math.ceil(len(shown.frames) / 2) if isinstance(shown, ClipRef) else 1)
        * max(1, round(shown.width / side))
        * max(1, round(shown.height / side))
        for shown in trajectory.visuals
    )


async def play_rows(
    plan: EvalPlan,
    rows: Sequence[VideoQA],
    shard: int,
    done: Callable[[Record | Failure], None],
    backend: Backend | None = None,
) -> None:
    """Play rows, some at a time, and write each episode down as it ends."""
    with (
        journal(plan.folder, shard) as file,
        (plan.folder / f"failures-{shard:03d}.jsonl").open("w", encoding="utf-8") as failed,
        closing(EvalContext(plan, backend)) as context,
    ):
        retriever = context.retriever()

        def fail(qa: VideoQA, error: Exception) -> None:
            failure = Failure(key_of(qa), described(error))
            logger.warning("row %s could not be played: %s", qa.id, failure.error)
            failed.write(json.dumps({"data_source": qa.data_source, "id": qa.id, "error": failure.error}) + "\n")
            failed.flush()
            done(failure)

        async def play(qa: VideoQA) -> None:
            try:
                record = await play_one(context, retriever, qa)
            except Exception as error:  # one question never stops the others
                return fail(qa, error)
            try:
                append(file, record)
            except RecordError as error:  # a disk that is full stops all of them
                return fail(qa, error)
            done(record)

        await run_pool(rows, play, plan.concurrency)


async def grade_again(
    plan: EvalPlan, episodes: Sequence[tuple[Record, VideoQA]], done: Callable[[Record | Failure], None]
) -> list[Failure]:
    """Grade recorded episodes by what their rows say now, and write those down whose row or grade has changed.

    No model is needed for it. The new records have the plan's revision, so that they count from then on."""
    failed: list[Failure] = []
    with closing(FrameStore(plan.settings.frame_store)) as source, journal(plan.folder, 0) as file:
        graders = make_graders(plan, source)

        async def grade(episode: tuple[Record, VideoQA]) -> None:
            record, qa = episode
            try:
                found = await grades(plan.system, record.trajectory, qa, graders, plan.settings.reward.timeout)
            except Exception as error:  # one question never stops the others
                failed.append(Failure(key_of(qa), described(error)))
                logger.warning("row %s could not be graded again: %s", qa.id, failed[-1].error)
                return done(failed[-1])
            rewards = {**found, **{name: value for name, value in record.rewards.items() if name not in GRADES}}
            provenance = {**record.provenance, REVISION: plan.provenance.get(REVISION, 0)}
            graded = Record(qa, record.trajectory, rewards, provenance)
            if rewards != record.rewards or not same_gold(record.qa, qa):
                append(file, graded)
            done(graded)

        await run_pool(episodes, grade, plan.concurrency)
    return failed
