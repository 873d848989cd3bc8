"""The gate of a cold start: sampled episodes on real files, with thresholds.

GRPO can't repair a model that writes no call or can't read frames: it collapses to guessing."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import FiniteFloat

from agentic_video.datasets.rows import load_rows
from agentic_video.evaluation.model import episode_seeds
from agentic_video.graders.base import Graders
from agentic_video.graders.verifier import Verifier, VerifierConfig
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.rollout.tokens import TokenPolicy
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.reward_function import system_score
from agentic_video.tools.base import Retriever
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.engine import BatchEngine, SeededEngine
from agentic_video.toyworld.model import chat_format_of, load_checkpoint
from agentic_video.toyworld.search import signs_named
from agentic_video.toyworld.serve import MODEL_NAME, serving
from agentic_video.toyworld.world import SEARCH_KINDS, STRETCHES, span_of
from agentic_video.types.row import LETTERS, VideoQA, windows_text
from agentic_video.types.trajectory import EndReason, Trajectory, frames_by
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.retrieval.encoder import ClipEncoder
from agentic_video.video.retrieval.retriever import FrameRetriever
from agentic_video.video.source import FrameSource
from agentic_video.video.store import FrameStore


@dataclass(frozen=True)
class SampledEpisode:
    """A sampled episode and its reward.

    Attributes:
        well_formed: Every turn follows the system's grammar.
    """

    qa: VideoQA
    trajectory: Trajectory
    reward: float
    acc: float
    well_formed: bool

    @property
    def right(self) -> bool:
        """True if the answer is fully right: a wrong word in a right sentence earns a part of ROUGE."""
        return self.acc > 0.99

    @property
    def zoomed(self) -> bool:
        """True after a legal call."""
        return self.trajectory.tool_calls > 0

    @property
    def needs_zoom(self) -> bool:
        """True if the overview alone can't answer."""
        return self.qa.extra["event_time"] is not None

    @property
    def saw_event(self) -> bool:
        """True if a zoom showed a frame of the event, to the agent or to a sub-agent."""
        if not self.needs_zoom:
            return False
        shown = [ref for turn in self.trajectory.turns for ref in frames_by(turn)]
        half = self.qa.extra["event_seconds"] / 2
        return any(abs(frame.time - self.qa.extra["event_time"]) < half for frame in shown)


@dataclass(frozen=True)
class GateLimits:
    """Thresholds of a cold start.

    Attributes:
        grammar: Least share of episodes, on questions that need a look, with a legal call and an answer.
        perception: Least share of right answers where the event was shown.
        margin: Least reward of zooming above that of guessing.
        max_accuracy: Most accuracy, so that GRPO has room.
        saw_event: Least share of right looks: GRPO can't reinforce what is never sampled.
        refused: Most refused calls per episode: half-learnt grammar teaches shortcuts.
        signs: Least share of arrows named correctly, of first frames and of looks, where events must be searched.
    """

    grammar: FiniteFloat = 0.8
    perception: FiniteFloat = 0.75
    margin: FiniteFloat = 0.15
    max_accuracy: FiniteFloat = 0.8
    saw_event: FiniteFloat = 0.15
    refused: FiniteFloat = 0.1
    signs: FiniteFloat = 0.85


@dataclass(frozen=True)
class GateReport:
    """Figures of sampled episodes; shares from 0 to 1.

    Attributes:
        well_formed: Share of episodes in which every turn follows the grammar.
        zoom_rate: Share of episodes with a legal call, on questions that need one.
        saw_event: Share of episodes whose zoom showed the event, likewise.
        refused: Refused calls per episode.
        zoom_reward: Mean reward of episodes that zoomed, on questions that need it.
        guess_reward: Mean reward of well-formed answers by chance.
        signs: Share of arrows named correctly by where they were seen; empty without search questions.
    """

    episodes: int
    accuracy: float
    grammar: float
    answered: float
    well_formed: float
    zoom_rate: float
    saw_event: float
    perception: float
    refused: float
    zoom_reward: float
    guess_reward: float
    signs: Mapping[str, float]
    by_kind: Mapping[str, float]
    perception_by_kind: Mapping[str, float]
    ends: Mapping[str, float]

    def __str__(self) -> str:
        read = {kind: f" (read {share:.2f})" for kind, share in self.perception_by_kind.items()}
        kinds = ", ".join(f"{kind} {share:.2f}{read.get(kind, '')}" for kind, share in self.by_kind.items())
        signs = "".join(f", arrows of {place} named truly {share:.3f}" for place, share in self.signs.items())
        return (
            f"{self.episodes} sampled episodes: accuracy {self.accuracy:.3f} ({kinds}); grammar {self.grammar:.3f}, "
            f"answered {self.answered:.3f}, well formed {self.well_formed:.3f}; zoomed {self.zoom_rate:.3f}, "
            f"saw the event {self.saw_event:.3f}, perception {self.perception:.3f}, refused {self.refused:.3f}"
            f"{signs}; reward of zooming {self.zoom_reward:.3f}, of guessing {self.guess_reward:.3f}; ends "
            + ", ".join(f"{reason} {share:.2f}" for reason, share in self.ends.items() if share)
        )


class GateError(RuntimeError):
    """The cold start is unfit; ``too_good`` if it knows too much already, which more training would worsen."""

    def __init__(self, message: str, *, too_good: bool = False):
        super().__init__(message)
        self.too_good = too_good


async def play_all(
    model: Any,
    tokenizer: Any,
    setting: Setting,
    questions: Sequence[VideoQA],
    source: FrameSource,
    retriever: Retriever | None = None,
    graders: Graders | None = None,
    *,
    samples: int,
    temperature: float = 1.0,
    seed: int = 0,
) -> list[SampledEpisode]:
    """Play ``samples`` episodes on each question, all at once; samples of a question are adjacent.

    Each episode has its own seeds: which episode asks first depends on the machine's load."""
    chat_format, system = chat_format_of(model, tokenizer), setting.system
    shared = BatchEngine(model, tokenizer, temperature=temperature)

    async def sample(qa: VideoQA, number: int) -> SampledEpisode:
        engine = SeededEngine(shared, episode_seeds(seed, f"{qa.id}\n{number}"))
        policy = TokenPolicy(engine, chat_format, setting.limits, system)
        trajectory = await play(system, policy, qa, source, retriever, rollout_index=number)
        score = await system_score(system, trajectory, qa, graders or Graders())
        return SampledEpisode(qa, trajectory, score.reward, score.acc, score.format == 1.0)

    return await asyncio.gather(*(sample(qa, number) for qa in questions for number in range(samples)))


async def guess_reward(setting: Setting, questions: Sequence[VideoQA], source: FrameSource, graders: Graders) -> float:
    """Mean reward of answering at once by chance: each possible answer of a question once."""

    async def guess(qa: VideoQA, letter: str, word: str) -> float:
        def say(view: EpisodeView) -> str:
            return setting.turns(view, None, word, letter)[-1]

        trajectory = await play(setting.system, ScriptedPolicy(say), qa, source)
        return (await system_score(setting.system, trajectory, qa, graders)).reward

    needing = [qa for qa in questions if qa.extra["event_time"] is not None]
    rewards = await asyncio.gather(*(guess(qa, *chance) for qa in needing for chance in _chances(qa)))
    return sum(rewards) / len(rewards) if rewards else 0.0


def _chances(qa: VideoQA) -> list[tuple[str, str]]:
    """Letters and texts of answers by chance: a question's options, or the stretches an event may be in."""
    if qa.options:
        return list(zip(LETTERS, qa.options, strict=False))
    if qa.extra["kind"] != "span":
        return []
    return [("", windows_text([span_of(stretch, int(qa.extra["seconds"]))])) for stretch in STRETCHES]


def _share(chosen: Sequence[bool]) -> float:
    """Share of true values; 0 of none."""
    return sum(chosen) / len(chosen) if chosen else 0.0


def _signs(episodes: Sequence[SampledEpisode]) -> dict[str, float]:
    """See :class:`GateReport`."""
    searched = [episode for episode in episodes if episode.qa.extra["kind"] in SEARCH_KINDS]
    named = [signs_named(episode.trajectory, float(episode.qa.extra["event_time"])) for episode in searched]
    return {
        place: _share([true for before, true in chain.from_iterable(named) if before == place])
        for place in (("first frames", "looks") if searched else ())
    }


def _right_by_kind(episodes: Sequence[SampledEpisode]) -> dict[str, float]:
    by_kind: dict[str, list[bool]] = {}
    for episode in sorted(episodes, key=lambda episode: episode.qa.extra["kind"]):
        by_kind.setdefault(episode.qa.extra["kind"], []).append(episode.right)
    return {kind: _share(right) for kind, right in by_kind.items()}


def summarize(episodes: Sequence[SampledEpisode], guessing: float) -> GateReport:
    """Figures of played episodes."""
    needing = [episode for episode in episodes if episode.needs_zoom]
    saw = [episode for episode in needing if episode.saw_event]
    zoomed = [episode.reward for episode in needing if episode.zoomed]
    return GateReport(
        episodes=len(episodes),
        accuracy=_share([episode.right for episode in episodes]),
        grammar=_share([episode.zoomed and episode.trajectory.answer is not None for episode in needing]),
        answered=_share([episode.trajectory.answer is not None for episode in episodes]),
        well_formed=_share([episode.well_formed for episode in episodes]),
        zoom_rate=_share([episode.zoomed for episode in needing]),
        saw_event=_share([episode.saw_event for episode in needing]),
        perception=_share([episode.right for episode in saw]),
        refused=sum(episode.trajectory.illegal_calls for episode in episodes) / len(episodes) if episodes else 0.0,
        zoom_reward=sum(zoomed) / len(zoomed) if zoomed else 0.0,
        guess_reward=guessing,
        signs=_signs(needing),
        by_kind=_right_by_kind(episodes),
        perception_by_kind=_right_by_kind(saw),
        ends={reason: _share([episode.trajectory.end == reason for episode in episodes]) for reason in EndReason},
    )


@asynccontextmanager
async def _graders(setting: Setting, source: FrameSource) -> AsyncIterator[Graders]:
    """Graders of the system's reward; the base model serves as the verifier."""
    if setting.base is None:
        yield Graders(source=source)
        return
    async with serving(setting.base) as url:
        yield Graders(verifier=Verifier(VerifierConfig(base_url=url, model=MODEL_NAME)), source=source)


def measure(
    model_dir: Path,
    rows: Path,
    setting: Setting,
    *,
    questions: int = 160,
    samples: int = 1,
    temperature: float = 1.0,
    seed: int = 0,
) -> GateReport:
    """Sample episodes of a checkpoint on the first questions of a split."""
    model, tokenizer = load_checkpoint(model_dir)
    model.eval()
    source = FrameStore()
    retriever = None
    if setting.clip is not None:
        retrieval = RetrievalConfig(model=f"local-dir:{setting.clip}", device="cpu")
        retriever = FrameRetriever(source, ClipEncoder(retrieval), retrieval)
    chosen, _ = load_rows([str(rows)], "exists")
    chosen = chosen[:questions]

    async def run() -> GateReport:
        async with _graders(setting, source) as graders:
            episodes = await play_all(
                model,
                tokenizer,
                setting,
                chosen,
                source,
                retriever,
                graders,
                samples=samples,
                temperature=temperature,
                seed=seed,
            )
            guessing = await guess_reward(setting, chosen[:16], source, graders)
        return summarize(episodes, guessing)

    return asyncio.run(run())


@dataclass(frozen=True)
class _Threshold:
    """A figure and its limit."""

    name: str
    value: float
    limit: float
    remedy: str
    at_most: bool = False

    @property
    def met(self) -> bool:
        """True within the limit."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        return f"{self.name} {self.value:.3f}, needed {sign} {self.limit} ({self.remedy})"


def check(
    model_dir: Path,
    rows: Path,
    setting: Setting,
    limits: GateLimits | None = None,
    remedies: Mapping[str, str] | None = None,
) -> GateReport:
    """Measure a cold start on held-out rows and refuse an unfit one.

    Args:
        remedies: Overrides by what they do (``more cold_start.steps``), for messages.
    """
    report = measure(model_dir, rows, setting)
    misses = missed_thresholds(report, limits or GateLimits(), remedies)
    if misses:
        raise GateError(
            f"the cold start isn't fit for training: {'; '.join(map(str, misses))}. {report}",
            too_good=any(threshold.name == "accuracy" for threshold in misses),
        )
    return report


def missed_thresholds(
    report: GateReport, limits: GateLimits, remedies: Mapping[str, str] | None = None
) -> list[_Threshold]:
    """Thresholds that a cold start's figures miss; see :func:`check`."""
    margin = report.zoom_reward - report.guess_reward

    def by(*what: str) -> str:
        return " or ".join((remedies or {}).get(each, each) for each in what)

    more_steps, less_aim_error = "more cold_start.steps", "less cold_start.aim_error_rate"
    thresholds = (
        _Threshold("grammar", report.grammar, limits.grammar, by(more_steps, "less cold_start.direct")),
        _Threshold(
            "perception",
            report.perception,
            limits.perception,
            f"{by(more_steps, 'more base.reading_steps')}, or take harder kinds out of the mixture",
        ),
        *(
            _Threshold(
                f"arrows of {place} named truly", share, limits.signs, by(more_steps, "more cold_start.demonstrations")
            )
            for place, share in report.signs.items()
        ),
        _Threshold("looks that show the event", report.saw_event, limits.saw_event, by(less_aim_error)),
        _Threshold(
            "refused calls an episode",
            report.refused,
            limits.refused,
            by(more_steps, "more cold_start.kept", "less cold_start.habit"),
            at_most=True,
        ),
        _Threshold("reward of zooming minus reward of guessing", margin, limits.margin, by(less_aim_error, more_steps)),
        _Threshold(
            "accuracy",
            report.accuracy,
            limits.max_accuracy,
            f"nothing is left to learn: {by('more cold_start.aim_error_rate')}",
            at_most=True,
        ),
    )
    return [threshold for threshold in thresholds if not threshold.met]
