# ruff: noqa: RUF001 - answers in full-width writing
"""Random, mutated and hostile model outputs through each system's own play and score.

Output ``n`` of a seed is always the same. The video is made up, so that only what systems do is timed; the verifier and
the judge are scripted.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import EpisodeView
from agentic_video.types.frame import Frame
from agentic_video.types.message import AsideRequest
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import EndReason, Trajectory
from agentic_video.video.index import VideoInfo
from agentic_video.video.source import DrawnSource
from tests.hostile_cases import CASES, QA, Case

PART = 5_000
"""Outputs of one system that are one line of the results."""

OPEN = replace(QA, answer="a green cup on the table", options=(), answer_type="open_ended")

PIECES = (
    "<tool_response>", "</tool_response>", "<|image_pad|>", "<|im_end|>", "<|im_start|>assistant\n", "<|vision_start|>",
    "\\boxed{", "}", "{", "[", "]", "(", ")", "B", "B.", "(B)", "green", "a green cup", "A. B. C. D.", ":", ",", '"',
    "1", "0", "-1", "2.5", "1e308", "1e-300", "1e999", "-0.0", "NaN", "Infinity", "0x10", "9" * 400, "9" * 5_000,
    "null", "true", '"fps"', '"t"', '"start_time"', "00:01", "99:99:99", "é", "绿色的杯子", "\u202e", "\x00", "\ud7ff",
    "\\frac{1}{2}", "\\text{", "$", "$$", "\\(", "\\]", "**", "~~", "__", "<b>", "【", "】", "，", "、", "秒", "到",
    "第", "至", "１２", "：", "-->", "00:00:12,500", "\u200b", "½", "²", "\ufdfa", "答案",
    "\ud800", "🎬", "\n", "\t", " " * 50, "reward: 1.5", "\\u0000", "\\ud800", "\\", "```json\n", "```", "<!--", "-->",
)  # fmt: skip


@dataclass
class Source(DrawnSource):
    """Frames of a made-up video, ten a second; counts requested frames."""

    seconds: float
    requested: int = 0
    keyframe_interval = 50

    def facts(self, path: str) -> VideoInfo:
        """Its facts."""
        count = max(1, int(self.seconds * 10))
        return VideoInfo("memory", 10.0, count, count / 10, 64, 64, 0, False, "none", "rgb24", 0.0)

    def draw(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> list[Frame]:
        """Black frames."""
        count = self.facts(path).num_frames
        if any(not 0 <= index < count for index in indices):
            raise IndexError(f"frames {min(indices)} to {max(indices)} of {count}")
        self.requested += len(indices)
        width, height = size or (64, 64)
        image = np.broadcast_to(np.zeros(3, np.uint8), (height, width, 3))
        return [Frame(index, index / 10, image) for index in indices]


class _Retriever:
    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        return [float(index % 7) for index in indices]

    async def acompare(self, path: str, indices: Sequence[int], prompt: str) -> tuple[np.ndarray, np.ndarray]:
        kinds = np.array(indices) % 7
        return kinds.astype(np.float32), (kinds[:, None] == kinds).astype(np.float32)


class _Verifier:
    """Always right: the agent's answer alone decides."""

    async def ask(self, prompt: str, frames: Sequence[Frame]) -> str:
        return "B"


class _Judge:
    """Grades by equality."""

    async def grade(self, question: str, reference: str, candidate: str, scale: str = "binary") -> float:
        return float(reference == candidate)


def _script(turns: Sequence[str]) -> Callable[[EpisodeView], str]:
    return lambda view: turns[len(view.turns) % len(turns)]


def mutated(rng: random.Random, text: str) -> str:
    """A text with a few characters lost, doubled, moved or put in."""
    for _ in range(rng.choice([1, 1, 2, 4, 10])):
        place, length = rng.randrange(len(text) + 1), rng.randrange(1, 12)
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:place] + text[place + length :]
        elif kind == 1:
            text = text[:place] + text[place : place + length] + text[place:]
        elif kind == 2:
            text = text[:place] + rng.choice(PIECES) + text[place + length * rng.randrange(2) :]
        else:
            other = rng.randrange(len(text) + 1)
            text = text[:place] + text[other : other + 3 * length] + text[place:]
    return text


def turn(rng: random.Random, case: Case) -> str:
    """A reply that a model may give."""
    tags = [tag for pair in case.tags for tag in pair]
    kind = rng.randrange(8)
    if kind <= 2:
        return mutated(
            rng, rng.choice([case.call, case.answer.replace("{}", "B"), case.request(rng.choice(case.requests))])
        )
    if kind == 3:
        return case.request("".join(rng.choices(PIECES, k=rng.randint(0, 8))))
    if kind == 4:
        return case.answer.replace("{}", "".join(rng.choices(PIECES, k=rng.randint(0, 6))))
    if kind == 5:
        return "".join(rng.choices([*PIECES, *tags, *case.requests, case.call], k=rng.randint(0, 16)))
    if kind == 6:
        return rng.choice([*PIECES, *tags]) * rng.choice([10, 100, 3_000])
    return case.call if rng.random() < 0.7 else case.answer.replace("{}", rng.choice("ABCD"))


def problem_of(case: Case, qa: VideoQA, trajectory: Trajectory, score: Score, requested: int) -> str:
    """The problem of an episode and its score; empty without one."""
    ends = (EndReason.ANSWER, EndReason.TURN_LIMIT, EndReason.ILLEGAL, EndReason.IMAGE_BUDGET)
    if trajectory.end not in ends:
        return f"ended by {trajectory.end.value}: {trajectory.error[:100]}"
    if requested > case.frames:
        return f"{requested} frames read"
    if not all(math.isfinite(value) for value in (score.reward, score.acc, *score.terms.values())):
        return f"reward {score.reward}"
    if qa is QA and score.reward > (case.right if score.acc else case.wrong) + 1e-9:
        return f"reward {score.reward} with accuracy {score.acc}"
    text = json.dumps(trajectory.to_dict(), ensure_ascii=False, allow_nan=False).encode(errors="backslashreplace")
    return "" if Trajectory.from_dict(json.loads(text)) == trajectory else "the record reads back as another one"


def _beside(said: str) -> Callable[[AsideRequest], str]:
    """A constant reply to side queries."""
    return lambda request: said


async def _part(name: str, seed: int, first: int, count: int) -> dict[str, Any]:
    case, ends, problems = CASES[name], Counter[str](), Counter[str]()
    slowest, slowest_at, said = 0.0, first, 0
    begun = time.monotonic()
    while said < count:
        number = first + said
        rng = random.Random(f"{seed}/{name}/{number}")
        turns = [turn(rng, case) for _ in range(case.system.max_turns)]
        qa = rng.choice([QA, QA, QA, OPEN])
        source = Source(rng.choice([0.1, 1.0, 60.0, 5_000.0]))
        # Side queries get the same hostile text, and then the right answer.
        policy = ScriptedPolicy(_script(turns), _beside(turns[0] + "<answer>B</answer>"))
        started = time.perf_counter()
        try:
            trajectory = await play(case.system, policy, qa, source, _Retriever())
            requested = source.requested
            graders = Graders(verifier=_Verifier(), judge=_Judge(), source=source)  # type: ignore[arg-type]
            score = await case.system.score(trajectory, qa, graders)
            seconds = time.perf_counter() - started
            said += max(1, len(trajectory.turns))
            ends[trajectory.end.value] += 1
            problem = problem_of(case, qa, trajectory, score, requested)
        except Exception as error:  # what nothing that a model says may cause
            seconds = time.perf_counter() - started
            said += 1
            problem = f"raised {type(error).__name__}: {str(error)[:100]}"
        if problem:
            problems[f"{problem} (output {number})"] += 1
        if seconds > slowest:
            slowest, slowest_at = seconds, number
    return {
        "system": name,
        "first": first,
        "outputs": said,
        "episodes": sum(ends.values()),
        "ends": dict(ends),
        "problems": dict(problems),
        "slowest": slowest,
        "slowest_at": slowest_at,
        "seconds": time.monotonic() - begun,
    }


def parts(seed: int, count: int, done: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The parts that are still to be played, of the systems in turn."""
    said = dict.fromkeys(CASES, 0)
    for part in done:
        said[part["system"]] += part["outputs"]
    while left := {name: count - had for name, had in said.items() if had < count}:
        name = max(left, key=lambda system: left[system])
        part = asyncio.run(_part(name, seed, said[name], min(PART, left[name])))
        said[name] += part["outputs"]
        yield part


def summary(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """All parts together, by system."""
    found: dict[str, Any] = {}
    for name in CASES:
        own = [part for part in parts if part["system"] == name]
        problems = [problem for part in own for problem in part["problems"]]
        ends: Counter[str] = Counter()
        for part in own:
            ends.update(part["ends"])
        found[name] = {
            "outputs": sum(part["outputs"] for part in own),
            "episodes": sum(part["episodes"] for part in own),
            "ends": dict(ends),
            "exceptions": sum("raised" in problem for problem in problems),
            "other_problems": sum("raised" not in problem for problem in problems),
            "first_problems": problems[:5],
            "slowest_episode_s": round(max((part["slowest"] for part in own), default=0.0), 3),
            "seconds": round(sum(part["seconds"] for part in own), 1),
        }
    return found
