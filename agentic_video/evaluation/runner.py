"""Plays a benchmark's questions, each exactly once, whatever is killed in between.

Every finished episode is one line of a journal, on disk before the next one counts. A run that is started again reads
the journals and plays what is missing. A question that can't be played (an unreadable video, a server that is gone) is
no episode: it is listed, and tried again next time.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from agentic_video.data import journal as files
from agentic_video.data.records import Record, load_records, write_record
from agentic_video.data.schema import VideoQA
from agentic_video.evaluation.speakers import ModelSpec, Speaker, make_speaker, usage_of
from agentic_video.rewards.answer import match_choice
from agentic_video.rewards.endpoint import JudgeError
from agentic_video.rewards.judge import Judge, JudgeConfig
from agentic_video.rollout.chat_policy import Usage
from agentic_video.rollout.episode import play_attempts
from agentic_video.rollout.policy import EngineError, Policy
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.rollout.trajectory import EndReason, Trajectory
from agentic_video.systems.base import Graders, System
from agentic_video.tools.base import Retriever
from agentic_video.video.retrieval import RetrievalConfig
from agentic_video.video.store import FrameSource, FrameStore, StoreConfig

logger = logging.getLogger(__name__)

SETTINGS_FILE = "eval.json"
JOURNALS = "episodes-*.jsonl"
FAILURES = "failures-*.jsonl"

Key = tuple[str, str]
"""A question across data files: its data source and its id."""


@dataclass(frozen=True)
class Plan:
    """All that a shard needs; plain data, so that it can travel to other machines.

    Attributes:
        folder: Where the journals are; all shards must see it.
        limits: Token budgets of an episode.
        concurrency: Episodes at a time.
        provenance: Noted in every record.
    """

    folder: Path
    system: System
    model: ModelSpec
    limits: TokenLimits
    frame_store: StoreConfig
    retrieval: RetrievalConfig
    judge: JudgeConfig
    concurrency: int
    provenance: Mapping[str, Any]


@dataclass(frozen=True)
class Failure:
    """A question that couldn't be played."""

    key: Key
    error: str


def key_of(qa: VideoQA) -> Key:
    """What names a question."""
    return qa.data_source, qa.id


def distinct(rows: Sequence[VideoQA]) -> tuple[list[VideoQA], list[str]]:
    """Rows without those whose data source and id were there before, and a message for each of these."""
    kept: dict[Key, VideoQA] = {}
    problems = []
    for qa in rows:
        if key_of(qa) in kept:
            problems.append(f"row {qa.id} of {qa.data_source}: field 'id' was there before; ids must be unique")
        else:
            kept[key_of(qa)] = qa
    return list(kept.values()), problems


def claim_folder(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make the folder of an evaluation, or go on in one of the same settings.

    Raises:
        SetupError: The folder holds an evaluation with other settings; the message names the first difference.
    """
    files.claim_folder(folder, settings, SETTINGS_FILE, "an evaluation")


def finished(folder: Path) -> tuple[list[Record], list[str]]:
    """The episodes that a folder's journals hold, each question once, and a message for each line that is no record.

    A line that a kill cut short is such a line; its question is played again.
    """
    records, problems = load_records(sorted(folder.glob(JOURNALS)))
    kept: dict[Key, Record] = {}
    for record in records:
        kept.setdefault(key_of(record.qa), record)
    return list(kept.values()), problems


def failures(folder: Path) -> list[Failure]:
    """The questions that couldn't be played in the latest run."""
    found = []
    for file in sorted(folder.glob(FAILURES)):
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                raw = json.loads(line)
                found.append(Failure((str(raw["data_source"]), str(raw["id"])), str(raw["error"])))
            except (ValueError, KeyError, TypeError):
                continue  # cut short by a kill
    return found


def journal(folder: Path, shard: int) -> AbstractContextManager[TextIO]:
    """A shard's journal, open for appending (see :func:`agentic_video.data.journal.open_journal`).

    Raises:
        SetupError: Another process has it open.
    """
    return files.open_journal(folder / f"episodes-{shard:03d}.jsonl", "evaluation")


def append(file: TextIO, record: Record) -> None:
    """Write a record; when this returns it is on disk."""
    write_record(file, record)
    files.settle(file)


class Cast:
    """What the episodes of one process share: who speaks, frames, retrieval, judge.

    Args:
        speaker: Who speaks; None makes the plan's. An evaluation of many parts loads its model once.
    """

    def __init__(self, plan: Plan, speaker: Speaker | None = None):
        self.plan = plan
        self._own = speaker is None
        self.speaker = speaker or make_speaker(plan.model, int(getattr(plan.system, "size_factor", 28)))
        self.source = FrameStore(plan.frame_store)
        self.graders = Graders(judge=Judge(plan.judge), source=self.source)

    def retriever(self) -> Retriever | None:
        """Finds frames by text, where a model for it is configured."""
        return make_retriever(self.plan.retrieval, self.source)

    def close(self) -> None:
        """Let go of frames and, if it was made here, of the model."""
        self.source.close()
        if self._own:
            self.speaker.close()


def make_retriever(config: RetrievalConfig, source: FrameSource) -> Retriever | None:
    """The retriever of this process; None where no model is configured.

    Raises:
        SetupError: The model can't be loaded.
    """
    if not config.model:
        return None
    from agentic_video.video.retrieval import ClipEncoder, FrameRetriever

    try:
        encoder = ClipEncoder(config)
    except (OSError, RuntimeError, ValueError) as error:
        raise files.SetupError(f"agentic_video.retrieval.model={config.model}: {error}") from error
    return FrameRetriever(source, encoder, config)


@dataclass(frozen=True)
class Played:
    """A question's episodes and what they took.

    Attributes:
        attempts: All of them; the last one counts.
        usage: Tokens of all attempts.
        seconds: Of all attempts.
    """

    attempts: tuple[Trajectory, ...]
    usage: Usage
    seconds: float


async def play_question(cast: Cast, retriever: Retriever | None, qa: VideoQA) -> Played:
    """Play a question as in evaluation, with every attempt that the system asks for.

    Raises:
        VideoError: The video can't be read.
        EngineError: The engine failed.
    """
    started = time.monotonic()
    policies: list[Policy] = []

    def make_policy(system: System) -> Policy:
        episode = json.dumps([*key_of(qa), len(policies)])
        policies.append(cast.speaker.policy(system, cast.plan.limits, episode))
        return policies[-1]

    attempts = await play_attempts(cast.plan.system, make_policy, qa, cast.source, retriever)
    if attempts[-1].end is EndReason.ENGINE_ERROR:
        raise EngineError(attempts[-1].error)
    usage = sum((usage_of(policy) for policy in policies), Usage())
    return Played(attempts, usage, time.monotonic() - started)


async def play_one(cast: Cast, retriever: Retriever | None, qa: VideoQA) -> Record:
    """Play and grade a question.

    Raises:
        VideoError: The video can't be read.
        EngineError: The engine failed.
    """
    played = await play_question(cast, retriever, qa)
    trajectory = played.attempts[-1]
    rewards = {
        **await grades(cast.plan.system, trajectory, qa, cast.graders),
        "turns": float(len(trajectory.turns)),
        "tool_calls": float(trajectory.tool_calls),
        "illegal_calls": float(trajectory.illegal_calls),
        "frames": float(len(trajectory.frames)),
        "visual_tokens": float(visual_tokens(trajectory, cast.speaker.factor)),
        "prompt_tokens": float(played.usage.prompt_tokens),
        "completion_tokens": float(played.usage.completion_tokens),
        "attempts": float(len(played.attempts)),
        "seconds": played.seconds,
        "video_seconds": (await cast.source.aprobe(qa.video)).duration,
    }
    return Record(qa, trajectory, rewards, cast.plan.provenance)


async def grades(system: System, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> dict[str, float]:
    """``acc`` by the system's own rule and ``acc_robust`` by the shared one; one that can't be had is left out."""
    found: dict[str, float] = {}
    try:
        found["acc"] = await system.grade(trajectory, qa, graders)
    except JudgeError as error:
        logger.info("row %s: not graded: %s", qa.id, error)
    if qa.answer_type == "multiple_choice":
        found["acc_robust"] = float(match_choice(trajectory.answer, qa, "robust"))
    return found


def visual_tokens(trajectory: Trajectory, factor: int) -> int:
    """Visual tokens of all shown frames.

    Args:
        factor: Pixels along each side of one token.
    """
    return sum(max(1, round(ref.width / factor)) * max(1, round(ref.height / factor)) for ref in trajectory.frames)


async def play_rows(
    plan: Plan,
    rows: Sequence[VideoQA],
    shard: int,
    done: Callable[[Record | Failure], None],
    speaker: Speaker | None = None,
) -> None:
    """Play rows, some at a time, and write each episode down as it ends.

    Args:
        shard: Number of the journal.
        done: Told about every row.
        speaker: See :class:`Cast`.

    Raises:
        SetupError: Another process plays this shard.
    """
    with journal(plan.folder, shard) as file:
        failed = (plan.folder / f"failures-{shard:03d}.jsonl").open("w", encoding="utf-8")
        with failed:
            cast = Cast(plan, speaker)
            try:
                retriever = cast.retriever()
                waiting = iter(rows)

                async def worker() -> None:
                    for qa in waiting:
                        try:
                            record = await play_one(cast, retriever, qa)
                        except Exception as error:  # one question never stops the others
                            failure = Failure(key_of(qa), f"{type(error).__name__}: {error}")
                            logger.warning("row %s could not be played: %s", qa.id, failure.error)
                            fields = {"data_source": qa.data_source, "id": qa.id, "error": failure.error}
                            failed.write(json.dumps(fields) + "\n")
                            failed.flush()
                            done(failure)
                        else:
                            append(file, record)
                            done(record)

                await asyncio.gather(*(worker() for _ in range(min(plan.concurrency, len(rows)))))
            finally:
                cast.close()
