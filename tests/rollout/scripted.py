"""The golden episodes' scripts, played with a model's chat format."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

from agentic_video.graders.base import Graders
from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.episode import play
from agentic_video.rollout.tokens import ChatFormat, TokenPolicy
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory
from tests.golden.episodes import (
    DURATION,
    OPTIONS,
    BlankSource,
    HashJudge,
    HashRetriever,
    HashVerifier,
    script,
    systems,
)
from tests.rollout.test_tokens import ROOMY


class AlwaysRight(HashJudge):
    async def grade(self, question: str, reference: str, candidate: str, scale: Any = "binary") -> float:
        return 1.0


class EndingEngine:
    """Generates texts that begin with an opened thought, unless the prompt has opened it, each ended by a token."""

    def __init__(self, texts: Sequence[str], chat_format: ChatFormat, ends: Sequence[str] = ()):
        self._texts, self._format = iter(texts), chat_format
        self._ends = cycle(chat_format.tokenizer.convert_tokens_to_ids([*ends]) if ends else [None])

    async def generate(self, request: GenerationRequest) -> Completion:
        text, prompt = next(self._texts), self._format.decode(request.prompt_ids)
        opened = prompt.endswith(("<think>\n", "<think>"))
        ids = self._format.encode(text.removeprefix("<think>\n") if opened else text)
        end = next(self._ends)
        return Completion(tuple(ids if end is None else [*ids, end]))


def comparable(trajectory: Trajectory) -> Any:
    """An episode without what counts tokens, and who wrote the beginning of an aside."""
    counted = ("num_tokens", "token_ids", "prompt_tokens", "prefix")

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items() if key not in counted}
        return [plain(item) for item in value] if isinstance(value, list | tuple) else value

    return plain(trajectory.to_dict())


def scripts(name: str, numbers: Sequence[int]) -> Iterator[tuple[Any, list[str]]]:
    """Systems of a name, and what a model that thinks first says to each of them."""
    kinds = systems()[name]
    for number in numbers:
        system = kinds[number % len(kinds)]
        texts = ["<think>\n" + text.removeprefix("<think>") for text in script(name, random.Random(number))]
        texts += [texts[-1]] * (system.max_turns + 1)
        if not any("\ud800" in text or not text.removeprefix("<think>\n") for text in texts):
            yield system, texts


def result_of(chat_format: ChatFormat, system: Any, texts: Sequence[str], ends: Sequence[str] = ()) -> list[Any]:
    """A scripted episode and its score."""
    extra = {"class": "active", "overview_times": [1.0, 5.0]}
    qa = VideoQA(id="q", video="memory", question="What flashes?", answer="B", options=OPTIONS, extra=extra)
    source = BlankSource(DURATION, 64, 64)
    policy = TokenPolicy(EndingEngine([*texts] * 3, chat_format, ends), chat_format, ROOMY, system)
    trajectory = asyncio.run(play(system, policy, qa, source, HashRetriever()))
    graders = Graders(judge=AlwaysRight(), source=source, verifier=HashVerifier())
    score = asyncio.run(system.score(trajectory, qa, graders))
    spoken = [turn.token_ids or () for turn in trajectory.turns]
    replaced = [chat_format.replaced_ids(ids, system.observation_role) for ids in spoken[:-1]]
    kept = [ids[: len(ids) - count] for ids, count in zip(spoken, [*replaced, 0], strict=True)]
    for sequence in policy.sequences:
        ids = [t for t, mask in zip(sequence.response_ids, sequence.response_mask, strict=True) if mask]
        assert ids == [t for turn in kept for t in turn][: len(ids)] or tuple(ids) in spoken
    return [comparable(trajectory), (score.reward, score.acc, score.format, dict(score.terms))]
