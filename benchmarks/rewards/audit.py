"""Does anything pay more than honesty? Strategies through each system's own play and score.

    python -m benchmarks.rewards.audit --episodes 2000 --out FILE

The right answer is drawn for each episode, so a strategy that doesn't know it can earn by chance only; what is
printed is the mean reward of each, and that of a blind guess. The video is made up (a minute, ten frames a second).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import EpisodeView
from agentic_video.types.message import AsideRequest
from agentic_video.types.row import LETTERS, VideoQA
from benchmarks.hostile.outputs import Source
from benchmarks.rewards.strategies import EXPLAINED, LOOK, PLAYED, SECONDS, Rows, Strategy, anywhere
from benchmarks.tables import table as markdown
from tests.hostile_cases import CASES, OPTIONS, Case

WIDEST = 7
"""Settings in a table."""


@dataclass(frozen=True)
class Setting:
    """A system as it is audited."""

    name: str  # for tables: the system, and what of it isn't its default
    case: Case  # it and its grammar
    kind: str = "active"  # class of the question, for VideoBrain
    rows: Rows = "choice"  # what is asked


def settings() -> Iterator[Setting]:
    """Every system with the reward of its defaults."""
    for name, case in CASES.items():
        system: Any = case.system
        default: Any = type(system)()
        # VideoBrain asks a judge by default; here the rule that needs none decides.
        rule = system.answer_match if default.answer_match == "judge" else default.answer_match
        as_shipped = replace(case, system=replace(system, answer_match=rule))
        if name == "videobrain":
            for kind in ("direct", "adaptive", "active"):
                yield Setting(f"{name}, {kind} question", as_shipped, kind)
        else:
            yield Setting(name, as_shipped)
            if name in LOOK:
                yield Setting(f"{name}, with evidence", as_shipped, rows="evidence")
                yield Setting(f"{name}, interval", as_shipped, rows="interval")


def question(setting: Setting, number: int, rng: random.Random) -> VideoQA:
    """Draw a question's right answer, or its evidence."""
    extra: dict[str, Any] = {"class": setting.kind}
    if setting.rows == "choice":
        answer = rng.choice(LETTERS[: len(OPTIONS)])
        return VideoQA(id=str(number), video="v", question="What?", answer=answer, options=OPTIONS, extra=extra)
    window = anywhere(rng)
    if setting.rows == "interval":
        said = f"{window[0]:.3f} - {window[1]:.3f}"
        return VideoQA(str(number), "v", "When?", said, answer_type="interval", extra=extra, windows=(window,))
    answer = rng.choice(LETTERS[: len(OPTIONS)])
    # Video-o3's rows say what its bonus is for; others don't read it
    extra["reward_class"] = "clue_single_w_tool"
    return VideoQA(str(number), "v", "What?", answer, options=OPTIONS, extra=extra, windows=(window,))


class _Verifier:
    """EVA's verifier: gives the answer if the agent was shown it, otherwise any letter."""

    def __init__(self, rng: random.Random, told: str):
        self._rng, self._told = rng, told

    async def ask(self, prompt: str, frames: Sequence[Any]) -> str:
        return self._told or _any_letter(self._rng)


def _any_letter(rng: random.Random) -> str:
    return rng.choice(LETTERS[: len(OPTIONS)])


@dataclass(frozen=True)
class Result:
    """Earnings of a strategy."""

    setting: str  # name of the setting
    strategy: str  # its name
    knows: str  # what it knows
    reward: float  # mean reward
    error: float  # standard error of the mean
    acc: float  # mean accuracy
    terms: dict[str, float]  # mean of each term
    ends: dict[str, float]  # how episodes ended, by share


async def audit(setting: Setting, strategy: Strategy, episodes: int, seed: int) -> Result:
    """Play a strategy in a setting so many times; the seed is of right answers and of the strategy's draws."""
    rng = random.Random(f"{seed}/{setting.name}/{strategy.name}")
    rewards: list[float] = []
    accuracies: list[float] = []
    terms: dict[str, float] = {}
    ends: dict[str, float] = {}
    for number in range(episodes):
        qa = question(setting, number, rng)
        source = Source(SECONDS)
        texts = strategy.turns(setting.case, qa, rng)
        told = qa.answer if strategy.knows == "right" else ""

        def say(view: EpisodeView, texts: Sequence[str] = texts) -> str:
            return texts[min(len(view.turns), len(texts) - 1)]

        policy = ScriptedPolicy(say, _beside(told, rng))
        trajectory = await play(setting.case.system, policy, qa, source, None)
        verifier = _Verifier(rng, told)
        graders = Graders(verifier=verifier, judge=None, source=source)  # type: ignore[arg-type]
        score = await setting.case.system.score(trajectory, qa, graders)
        rewards.append(score.reward)
        accuracies.append(score.acc)
        for term, value in score.terms.items():
            terms[term] = terms.get(term, 0.0) + value / episodes
        end = trajectory.end.value
        ends[end] = ends.get(end, 0.0) + 1 / episodes
    error = statistics.stdev(rewards) / math.sqrt(episodes) if episodes > 1 else 0.0
    return Result(
        setting.name,
        strategy.name,
        strategy.knows,
        statistics.fmean(rewards),
        error,
        statistics.fmean(accuracies),
        terms,
        ends,
    )


def _beside(told: str, rng: random.Random) -> Callable[[AsideRequest], str]:
    """Reply to side queries: the right answer if it is known, or any letter."""
    return lambda request: told or _any_letter(rng)


def pays_more(results: Sequence[Result]) -> list[Result]:
    """Strategies of one setting that know nothing and earn more than a blind guess, by more than chance."""
    guess = next(result for result in results if result.strategy == "blind guess")
    return [
        result
        for result in results
        if result.knows == "nothing" and result.reward - guess.reward > 4 * math.hypot(result.error, guess.error) + 1e-9
    ]


def _by_setting(results: Sequence[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.setting, []).append(result)
    return found


def table(results: Sequence[Result]) -> str:
    """Mean rewards, strategies down and settings across; bold pays more than a blind guess.

    Settings with other strategies have a table of their own, and none is wider than ``WIDEST`` settings.
    """
    by_setting = _by_setting(results)
    more = {(result.setting, result.strategy) for own in by_setting.values() for result in pays_more(own)}
    rewards = {(result.setting, result.strategy): f"{result.reward:.2f}" for result in results}
    rewards |= {key: f"**{rewards[key]}**" for key in more}
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, own in by_setting.items():
        groups.setdefault(tuple(result.strategy for result in own), []).append(name)
    return "\n\n".join(
        markdown(
            ["strategy", *across],
            [[strategy, *(rewards[name, strategy] for name in across)] for strategy in strategies],
            numbers=len(across),
        )
        for strategies, names in groups.items()
        for across in (names[first : first + WIDEST] for first in range(0, len(names), WIDEST))
    )


def unexplained(results: Sequence[Result]) -> list[Result]:
    """Strategies that pay more than a blind guess by no published rule."""
    return [result for own in _by_setting(results).values() for result in pays_more(own) if _cause(result) is None]


def causes(results: Sequence[Result]) -> str:
    """Table of the strategies that pay more than a blind guess: by how much, and why."""
    rows = []
    for name, own in _by_setting(results).items():
        guess = next(result.reward for result in own if result.strategy == "blind guess")
        for result in pays_more(own):
            terms = ", ".join(f"{term} {value:.2f}" for term, value in result.terms.items() if abs(value) > 5e-3)
            why = _cause(result) or "**nothing published: a defect**"
            rows.append([name, result.strategy, f"{result.reward:.2f}", f"{guess:.2f}", terms, why])
    return markdown(["", "strategy", "reward", "blind guess", "terms", "why, and the key that ends it"], rows)


def _cause(result: Result) -> str | None:
    return EXPLAINED.get((result.setting.split(",")[0], result.strategy))


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=2000, help="of each strategy and system")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="json file for the figures")
    options = parser.parse_args(arguments)

    async def all_of_them() -> list[Result]:
        return [
            await audit(setting, strategy, options.episodes, options.seed)
            for setting in settings()
            for strategy in PLAYED[setting.rows]
        ]

    results = asyncio.run(all_of_them())
    print(table(results))
    print(causes(results))
    if options.out is not None:
        options.out.write_text(json.dumps([vars(result) for result in results], indent=1) + "\n")
    return 1 if unexplained(results) else 0


if __name__ == "__main__":
    sys.exit(main())
