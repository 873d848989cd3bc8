"""Corrections by a teacher (VideoZoomer's reflection data): it names the flaw of a failed episode, and does better.

A recorded episode that answered wrong or not at all is replayed up to its flawed call; the teacher continues from
there. What ends right is kept: the flawed turns as context, the correction to learn from.
"""

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from tyro.conf import UseAppendAction

from agentic_video.evaluation.backends.base import usage_of
from agentic_video.evaluation.context import EvalContext
from agentic_video.evaluation.runner import grades
from agentic_video.graders.replies import read_object
from agentic_video.rollout.chat_policy import Usage
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import EngineError, Policy, Utterance
from agentic_video.synthesis.asking import MAX_TURN_CHARS, ask_player, prompt
from agentic_video.synthesis.distill import write_outputs
from agentic_video.synthesis.inputs import (
    INFRASTRUCTURE_ENDS,
    content_of,
    digest,
    of_system,
    read_episodes,
)
from agentic_video.synthesis.jobs import KEPT, JobReport, Key, Outcome, SynthesisJob, open_job
from agentic_video.synthesis.teachers import Teacher, TeacherOptions, prepare
from agentic_video.synthesis.verify import demonstration_fault, verify
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.prompts import fill
from agentic_video.types.action import Calls
from agentic_video.types.message import AsideRequest, Message, Part
from agentic_video.types.record import Record
from agentic_video.types.trajectory import Aside, EndReason, RecordedPart, Trajectory, Turn, recorded_frames
from agentic_video.utils.option_types import Fraction, ModelName

Kept = Literal["flaw", "whole"]
"""The part of a failed episode before its correction: all up to its flaw, or (released code) all but its answer."""
Loss = Literal["correction", "all"]
"""Turns with loss in SFT: the correction's alone, or (released code) those before it too."""

MAX_FLAW_CHARS = 1_000


@dataclass(frozen=True, kw_only=True)
class ReflectOptions(TeacherOptions):
    """Failures, and their corrections."""

    teacher: ModelName
    """address of an OpenAI-compatible server (http://host:8000/v1), or folder of a checkpoint"""
    rollouts: UseAppendAction[tuple[Path, ...]]
    """file of trajectory records, or folder of a run or an evaluation; may be repeated"""
    min_acc: Fraction = 1.0
    """an answer graded less than this is a failure"""
    keep: Kept = "flaw"
    """context of a correction: the episode up to the turn that the teacher finds flawed, or all but its answer"""
    loss: Loss = "correction"
    """turns with loss in SFT: the correction's, or those before it too"""


def reflect(options: ReflectOptions) -> JobReport:
    """Have failures corrected; complete when every failure was."""
    episodes = read_episodes(options.rollouts)
    teacher = prepare(options, options.teacher, options.teacher_name)
    own = of_system(episodes, teacher.system.name, "whose failures are corrected (--system, --recipe)")
    records = chain([next(own)], own)  # there is one, before a folder is made
    settings = {
        **teacher.identity(),
        "rollouts": [str(path.resolve()) for path in options.rollouts],
        "min_acc": options.min_acc,
        # folders of earlier versions lack these keys
        **({"keep": options.keep} if options.keep != ReflectOptions.keep else {}),
        **({"loss": options.loss} if options.loss != ReflectOptions.loss else {}),
    }
    with open_job(options, settings, "reflection") as job:
        asyncio.run(_play(job, teacher, records, options))
        title = f"Failures of {teacher.system.name} corrected by {teacher.name}"
        return JobReport(write_outputs(job, title), not job.failures)


async def _play(job: SynthesisJob, teacher: Teacher, records: Iterable[Record], options: ReflectOptions) -> None:
    with closing(teacher.context(job.folder, job.options.concurrency)) as context:
        failed, count = await failures(records, teacher, context, options.min_acc)
        print(f"{count} episodes, {len(failed)} of them failures of {teacher.system.name}", file=sys.stderr)
        items = dict(list(failed.items())[: options.limit])
        await job.play(items, Reflector(teacher, context, options).reflect)


async def failures(
    records: Iterable[Record], teacher: Teacher, context: EvalContext, least_acc: float
) -> tuple[dict[Key, Record], int]:
    """The episodes that the agent itself made fail, each once, by data source, id and content; number of all episodes.

    An answer without a grade in its record is graded; one that can't be is left out.
    """
    failed: dict[Key, Record] = {}
    count = 0
    for record in records:
        count += 1
        qa, trajectory = record.qa, record.trajectory
        if trajectory.end in INFRASTRUCTURE_ENDS:
            continue
        acc: float | None = 0.0
        if trajectory.answer is not None:
            acc = record.rewards.get("acc")
            if acc is None:
                acc = (await grades(teacher.system, trajectory, qa, context.graders)).get("acc")
        if acc is not None and acc < least_acc:
            # By content: where a folder has got an episode more, the others are still what they were.
            content = digest(json.dumps(trajectory.to_dict()))[:16]
            failed[(qa.data_source, qa.id, content, content_of(qa))] = record
    return failed, count


@dataclass(frozen=True)
class Diagnosis:
    """The teacher's account of a failure."""

    turn: int  # number of the flawed turn, from 1
    flaw: str  # in its words; empty where it wasn't asked


def read_diagnosis(reply: str, turns: Sequence[int]) -> Diagnosis | None:
    """The diagnosis in a reply; None where there is none, or it names another turn than one of ``turns``."""
    found = read_object(reply) or {}
    turn, flaw = found.get("turn"), found.get("flaw")
    if not isinstance(turn, int) or isinstance(turn, bool) or turn not in turns:
        return None
    if not isinstance(flaw, str) or not flaw.strip():
        return None
    return Diagnosis(turn, flaw.strip()[:MAX_FLAW_CHARS])


class Reflector:
    """Corrects one failed episode after the other."""

    def __init__(self, teacher: Teacher, context: EvalContext, options: ReflectOptions):
        self._teacher, self._context, self._options = teacher, context, options
        self._retriever = context.retriever()

    async def reflect(self, record: Record) -> Outcome:
        """Diagnose, correct, check."""
        failed, system = record.trajectory, self._teacher.system
        turns = correctable(failed, system.max_turns)
        if not turns:
            return Outcome("no call to correct")
        past = PastPolicy(failed.turns, prefix=system.reply_prefix, asides=failed.all_asides)
        replayed = await self._replay(past, record)
        if not _same(replayed, failed, max(turns)):
            return Outcome("plays differently now")  # another video file or config than it was played with

        backend, limits = self._context.backend, self._teacher.limits
        diagnosis, usage, instructions = Diagnosis(max(turns), ""), Usage(), prompt("continue_whole")
        if self._options.keep == "flaw":
            question = past.quoted(len(failed.turns), fill(prompt("diagnose"), turns=", ".join(map(str, turns))))
            reply, usage = await ask_player(backend, system, limits, question)
            found = read_diagnosis(reply, turns)
            if found is None:
                return Outcome("unclear diagnosis", None, usage)
            diagnosis, instructions = found, fill(prompt("continue"), flaw=found.flaw)

        policy = backend.policy(system, limits)
        kept = failed.turns[: diagnosis.turn]
        asides = [aside for turn in kept for aside in turn.asides]
        past = PastPolicy(kept, policy, instructions, prefix=system.reply_prefix, asides=asides)
        corrected = await self._replay(past, record)
        if corrected.end is EndReason.ENGINE_ERROR:
            raise EngineError(corrected.error)
        return await self._outcome(record, corrected, diagnosis, usage + usage_of(policy))

    async def _replay(self, policy: Policy, record: Record) -> Trajectory:
        index, source = record.trajectory.rollout_index, self._context.source
        return await play(self._teacher.system, policy, record.qa, source, self._retriever, rollout_index=index)

    async def _outcome(self, record: Record, corrected: Trajectory, diagnosis: Diagnosis, usage: Usage) -> Outcome:
        system, before = self._teacher.system, corrected.turns[: diagnosis.turn]
        correction = corrected.turns[diagnosis.turn :]
        # The flaw itself may be an illegal call: what is learnt must be legal, not what it corrects.
        own = replace(corrected, turns=correction)
        verdict = await verify(system, own, record.qa, self._context.graders, self._options.min_acc)
        reason = verdict.reason
        if reason == KEPT:
            # What it repeats, or leaves unused, may be in the turns before it.
            reason = demonstration_fault(system, corrected) or KEPT
        flawed = before[-1].action
        if correction and isinstance(flawed, Calls) and correction[0].action == flawed:
            reason = "the same call again"
        shown = tuple(replace(turn, loss_mask=self._options.loss == "all") for turn in before)
        provenance = {
            "source": "reflection",
            "teacher": self._teacher.name,
            "flawed_turn": diagnosis.turn,
            "flaw": diagnosis.flaw,
            "original": {
                "trajectory": record.trajectory.to_dict(),
                "reward_extra_info": dict(record.rewards),
                "provenance": dict(record.provenance),
            },
        }
        kept = Record(record.qa, replace(corrected, turns=shown + correction), verdict.rewards, provenance)
        return Outcome(reason, kept.to_dict(), usage)


def correctable(trajectory: Trajectory, max_turns: int) -> list[int]:
    """Numbers (from 1) of the turns after which the agent was shown something and could have continued."""
    return [number for number, turn in enumerate(trajectory.turns, start=1) if turn.observation and number < max_turns]


def _same(replayed: Trajectory, before: Trajectory, count: int) -> bool:
    """Compare opening and first turns; times may be rounded otherwise."""

    def parts(shown: Sequence[RecordedPart]) -> list[Any]:
        return [
            part if isinstance(part, str) else [(ref.index, ref.width, ref.height) for ref in recorded_frames([part])]
            for part in shown
        ]

    def content(trajectory: Trajectory) -> list[Any]:
        opening = [(message.role, parts(message.parts)) for message in trajectory.opening]
        return opening + [(turn.text, parts(turn.observation)) for turn in trajectory.turns[:count]]

    return content(replayed) == content(before)


class PastPolicy:
    """Replays recorded turns and side queries, then lets a teacher continue, who is shown them as a record.

    Without a teacher (``policy``) the episode ends after the turns; ``prefix`` is the system's ``reply_prefix``.
    """

    def __init__(
        self,
        turns: Sequence[Turn],
        policy: Policy | None = None,
        instructions: str = "",
        *,
        prefix: str = "",
        asides: Sequence[Aside] = (),
    ):
        self._turns, self._policy, self._instructions = turns, policy, instructions
        self._prefix, self._asides = prefix, iter(asides)
        self._opening: tuple[Message, ...] = ()
        self._shown: list[tuple[Part, ...]] = []
        self._begun = False

    @property
    def num_tokens(self) -> int:
        return 0  # the teacher's count is of another conversation than the record's

    async def begin(self, messages: Sequence[Message]) -> bool:
        self._opening = tuple(messages)
        return True

    async def say(self, view: EpisodeView) -> Utterance:
        if len(view.turns) < len(self._turns):
            turn = self._turns[len(view.turns)]
            text = turn.text.removeprefix(self._prefix)
            return Utterance(text, turn.num_tokens, turn.finished, token_ids=turn.token_ids)
        if self._policy is None:
            raise EngineError("the record ends here")
        if not self._begun:
            self._begun = True
            if not await self._policy.begin(self.quoted(len(self._turns), self._instructions)):
                raise EngineError("the record doesn't fit the teacher's prompt")
        return await self._policy.say(view)

    async def show(self, parts: Sequence[Part]) -> bool:
        if self._policy is not None and self._begun:
            return await self._policy.show(parts)
        self._shown.append(tuple(parts))
        return True

    async def ask(self, request: AsideRequest) -> Aside:
        if (recorded := next(self._asides, None)) is not None:
            return recorded
        if self._policy is None:
            raise EngineError("the record ends here")
        return await self._policy.ask(request)

    def quoted(self, count: int, after: str) -> tuple[Message, ...]:
        """The opening, followed by the first turns as a record, frames included, and a text."""
        record: list[Part] = [f"\n\n{prompt('attempt')} "]
        for number, turn in enumerate(self._turns[:count], start=1):
            record.append(f"\n\nTurn {number}: {json.dumps(turn.text[:MAX_TURN_CHARS])}\n")
            if number <= len(self._shown):
                record += ["It was shown: ", *self._shown[number - 1]]
        last = self._opening[-1]
        return (*self._opening[:-1], Message(last.role, (*last.parts, *record, f"\n\n{after}")))
