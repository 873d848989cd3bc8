"""EVA's teachers (paper, section 6.2): an executor, a reflective thinker that checks its calls, and an experience bank.

The executor plays the episode. Before a call counts, the thinker is asked whether its parameters are reasonable; if
not, the executor rewrites the turn, a bounded number of times. Only the last version is in the record and in the
executor's own context. A workflow hint and past successes with similar questions, summarised by the teacher, stand in
the executor's instructions only: the record has the system's own prompt.
"""

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import NonNegativeInt, PositiveInt
from rank_bm25 import BM25Plus

from agentic_video.evaluation.backends.base import Backend
from agentic_video.graders.replies import spoken
from agentic_video.rollout.chat_policy import ChatPolicy, Usage
from agentic_video.rollout.policy import EngineError, Utterance
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.synthesis.asking import ask_player, instructed, prompt, transcript
from agentic_video.synthesis.guidance import GuidedPolicy
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.prompts import fill, question_text
from agentic_video.types.action import Calls, Illegal
from agentic_video.types.message import Message, text_of
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory

MAX_EXPERIENCE_CHARS = 2_000
"""Of one past success without a summary, as the executor is shown it."""
MAX_SUMMARY_CHARS = 1_000
MAX_ADVICE_CHARS = 1_000

WORKFLOWS = prompt("workflows").splitlines()
"""Workflow hints (paper, section 3.2); each episode's instructions hold one, so that demonstrations differ."""


@dataclass(frozen=True, kw_only=True)
class TeamOptions:
    """Bounds of a team's work; 0 does without the thinker, or without the bank."""

    thinker_rounds: NonNegativeInt = 2
    """of a team: most times that a call is written again"""
    experiences: NonNegativeInt = 3
    """of a team: past successes shown"""
    bank_round: PositiveInt = 64
    """of a team: the bank grows after each N questions"""


@dataclass(frozen=True)
class Experience:
    """A past success."""

    qa: VideoQA
    turns: tuple[str, ...]
    summary: str = ""  # the teacher's own account of its approach

    @classmethod
    def of(cls, record: Record) -> "Experience":
        """The experience of a verified episode."""
        team = record.provenance.get("team", {})
        return cls(record.qa, tuple(turn.text for turn in record.trajectory.turns), team.get("summary", ""))


class ExperienceBank:
    """Past successes, found by the similarity of their questions (BM25).

    Their order decides between equally similar ones: a restart must give it again.
    """

    def __init__(self, experiences: Sequence[Experience] = ()):
        self._experiences = list(experiences)
        self._index = BM25Plus([_words(experience.qa) for experience in experiences]) if experiences else None

    def __len__(self) -> int:
        return len(self._experiences)

    def similar(self, qa: VideoQA, count: int) -> list[Experience]:
        """The experiences with the most similar questions, best first; none of the same video, which would give away
        what is to be found."""
        if self._index is None:
            return []
        scores = self._index.get_scores(_words(qa))
        ranked = sorted(range(len(self._experiences)), key=lambda number: -float(scores[number]))
        others = [self._experiences[number] for number in ranked if self._experiences[number].qa.video != qa.video]
        return others[: max(0, count)]


def _words(qa: VideoQA) -> list[str]:
    # BM25 divides by the mean length: no text may be empty.
    return re.findall(r"\w+", question_text(qa, "{text}").lower()) or ["?"]


def experience_text(experiences: Sequence[Experience]) -> str:
    """Past successes as the executor reads them."""
    shown = []
    for experience in experiences:
        entry: dict[str, Any] = {"question": question_text(experience.qa, "{letter}. {text}")}
        if experience.summary:
            shown.append({**entry, "approach": experience.summary})
            continue
        room, turns = MAX_EXPERIENCE_CHARS, []
        for text in experience.turns:
            turns.append(text[:room])
            room -= len(turns[-1])
        shown.append({**entry, "turns": [turn for turn in turns if turn]})
    return json.dumps(shown, indent=1)


def workflow_of(qa: VideoQA, sample: int) -> int:
    """Number of the workflow hint of an episode: the same in every run, another for each sample."""
    return (zlib.crc32(f"{qa.data_source} {qa.id}".encode()) + sample) % len(WORKFLOWS)


async def summarise(
    backend: Backend, system: System, limits: TokenLimits, trajectory: Trajectory, qa: VideoQA
) -> tuple[str, Usage]:
    """The teacher's summary of a verified episode, cut, and its cost; empty without a reply."""
    material = {"question": question_text(qa, "{letter}. {text}"), "turns": transcript(trajectory.turns)}
    try:
        reply, usage = await ask_player(backend, system, limits, instructed(prompt("summarise"), material))
    except EngineError:  # the turns themselves are shown instead
        return "", Usage()
    return reply[:MAX_SUMMARY_CHARS].strip(), usage


def read_review(reply: str) -> str | None:
    """The thinker's objection; empty where it has none, None for an unclear reply."""
    verdict = spoken(reply)
    if re.fullmatch(r"OK[.!]?", verdict):
        return ""
    match = re.fullmatch(r"REVISE\s*:\s*(\S.*)", verdict, re.DOTALL)
    return match[1].strip()[:MAX_ADVICE_CHARS] if match else None


@dataclass
class TeamNotes:
    """Counts of an episode's reviews."""

    reviews: int = 0  # calls that the thinker looked at
    objections: int = 0
    unclear: int = 0  # unclear replies, after which the call was carried out
    usage: Usage = field(default_factory=Usage)  # of the thinker


class TeamPolicy(GuidedPolicy):
    """The executor with its thinker, as one :class:`agentic_video.rollout.policy.Policy`; ``notes`` counts reviews.

    The backend plays the thinker, ``limits`` are those of its replies; ``rounds`` bounds how often a turn is rewritten.
    """

    def __init__(
        self,
        executor: ChatPolicy,
        backend: Backend,
        system: System,
        limits: TokenLimits,
        experiences: Sequence[Experience],
        workflow: str,
        rounds: int,
    ):
        guidance = f"{prompt('executor')}\n\nA way that suits many questions: {workflow}"
        if experiences:
            guidance += f"\n\n{prompt('experiences')}\n{experience_text(experiences)}"
        super().__init__(executor, guidance)
        self._executor, self._backend, self._system, self._limits = executor, backend, system, limits
        self._rounds = rounds
        self._task = ""
        self.notes = TeamNotes()

    @property
    def usage(self) -> Usage:
        """Cost of executor and thinker so far."""
        return self._executor.usage + self.notes.usage

    async def begin(self, messages: Sequence[Message]) -> bool:
        self._task = "\n\n".join(text_of(message.parts) for message in messages if message.role == "system")
        return await super().begin(messages)

    async def say(self, view: EpisodeView) -> Utterance:
        start = self._executor.num_messages
        utterance = await self._executor.say(view)
        tries = 0
        prefix = self._system.reply_prefix
        while tries < self._rounds and isinstance(self._system.parse(utterance.whole(prefix)), Calls):
            objection = await self._review(view, utterance.whole(prefix))
            if not objection:
                break
            tries += 1
            await self._executor.show((fill(prompt("advice"), advice=objection),))
            rewritten = await self._executor.say(view)
            if isinstance(self._system.parse(rewritten.whole(prefix)), Illegal):
                break  # better the version that the thinker doubts
            utterance = rewritten
        if tries:
            self._executor.rewrite(start, utterance.whole(prefix))
        return utterance

    async def _review(self, view: EpisodeView, proposed: str) -> str:
        """The thinker's objection to a turn; empty where it has none."""
        info = view.video.info
        material = {
            "task": self._task,
            "question": question_text(view.qa, "{letter}. {text}"),
            "video": f"{info.duration:.1f} seconds, {info.width}x{info.height} pixels",
            "so_far": transcript(view.turns),
            "proposed": proposed,
        }
        reply, usage = await ask_player(
            self._backend, self._system, self._limits, instructed(prompt("thinker"), material)
        )
        self.notes.usage += usage
        self.notes.reviews += 1
        objection = read_review(reply)
        self.notes.unclear += objection is None
        self.notes.objections += bool(objection)
        return objection or ""
