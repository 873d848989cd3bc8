"""An engine for the tiny model that batches concurrent requests.

For the cold start's gate and tests, where starting vLLM would take longer than all episodes."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from agentic_video.families.registry import family_of
from agentic_video.families.tiny import decoded, pixels_of, seconds_of
from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.policy import EngineError
from agentic_video.types.message import Visual


@dataclass
class _PendingRequest:
    prompt_ids: list[int]
    visuals: list[Visual]
    stop_ids: frozenset[int]
    max_tokens: int
    banned_ids: frozenset[int]
    generator: torch.Generator
    result: asyncio.Future[Completion] = field(repr=False)


class BatchEngine:
    """Samples from the tiny model; requests that wait at one moment form a batch.

    Args:
        tokenizer: Every stop text must be one of its tokens.
        temperature: 0 is greedy.
        seed: Sampling seed; a request's own seed makes its tokens independent of the order of requests.
        max_batch: Most sequences per batch.
    """

    def __init__(self, model: Any, tokenizer: Any, *, temperature: float = 1.0, seed: int = 0, max_batch: int = 512):
        self._model = model
        self._tokenizer = tokenizer
        self._temperature = temperature
        self._generator = torch.Generator().manual_seed(seed)
        self._max_batch = max_batch
        self._waiting: list[_PendingRequest] = []
        self._flush: asyncio.Task[None] | None = None

    async def generate(self, request: GenerationRequest, *, seed: int | None = None) -> Completion:
        """Generate a turn; ``seed`` is for this turn alone."""
        generator = self._generator if seed is None else torch.Generator().manual_seed(seed)
        ends = {self._tokenizer.eos_token_id, *request.end_ids}
        stop_ids = frozenset(ends.union(map(self._token, request.stop)))
        loop = asyncio.get_running_loop()
        waiting = _PendingRequest(
            list(request.prompt_ids),
            list(request.visuals),
            stop_ids,
            request.max_tokens,
            frozenset(request.banned_ids),
            generator,
            loop.create_future(),
        )
        self._waiting.append(waiting)
        if self._flush is None:
            self._flush = loop.create_task(self._serve())
        return await waiting.result

    def _token(self, text: str) -> int:
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise EngineError(f"the stop text {text!r} must be one token of the tiny model's tokenizer")
        return int(ids[0])

    async def _serve(self) -> None:
        # Wait until the other episodes have asked as well: when a few passes of the event loop bring no new request,
        # everyone who can ask has asked.
        count, quiet = 0, 0
        while quiet < 3 and len(self._waiting) < self._max_batch:
            await asyncio.sleep(0.002)
            quiet = quiet + 1 if len(self._waiting) == count else 0
            count = len(self._waiting)
        batch, self._waiting = self._waiting[: self._max_batch], self._waiting[self._max_batch :]
        self._flush = asyncio.get_running_loop().create_task(self._serve()) if self._waiting else None
        try:
            completions = self._sample(batch)
        except Exception as error:
            for request in batch:
                request.result.set_exception(EngineError(f"sampling failed: {error}"))
            return
        for request, completion in zip(batch, completions, strict=True):
            if not request.result.done():
                request.result.set_result(completion)

    @torch.no_grad()
    def _sample(self, batch: Sequence[_PendingRequest]) -> list[Completion]:
        """Sample left-padded sequences with a key-value cache until each has stopped."""
        model, size, length = self._model, len(batch), max(len(request.prompt_ids) for request in batch)
        ids = torch.full((size, length), self._tokenizer.pad_token_id)
        mask = torch.zeros((size, length), dtype=torch.long)
        for row, request in enumerate(batch):
            ids[row, length - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids)
            mask[row, length - len(request.prompt_ids) :] = 1
        images = pixels_of([shown for request in batch for shown in request.visuals])
        tiny = family_of(model).tiny
        place = torch.zeros((tiny.axes, size, length), dtype=torch.long)
        for row, request in enumerate(batch):
            place[:, row, length - len(request.prompt_ids) :] = tiny.positions(
                model, request.prompt_ids, pixels_of(request.visuals), seconds_of(request.visuals)
            )
        banned = torch.zeros((size, model.config.text_config.vocab_size), dtype=torch.bool)
        for row, request in enumerate(batch):
            banned[row, list(request.banned_ids)] = True
        stops = [request.stop_ids for request in batch]
        generators = [request.generator for request in batch]

        cache = DynamicCache(config=model.config.text_config)
        inputs = tiny.embed(model, ids, images)
        said = np.zeros((size, max(request.max_tokens for request in batch)), dtype=np.int64)
        scores = np.zeros(said.shape, dtype=np.float32)
        lengths = np.array([request.max_tokens for request in batch])
        active = np.ones(size, dtype=bool)
        for step in range(said.shape[1]):
            output = decoded(model, inputs, place, attention_mask=mask, past_key_values=cache, use_cache=True)
            logits = model.lm_head(output.last_hidden_state[:, -1]).masked_fill(banned, -torch.inf)
            tokens, log_probs = self._choose(logits, generators)
            said[:, step], scores[:, step] = tokens.numpy(), log_probs.numpy()
            for row in np.flatnonzero(active):
                if int(said[row, step]) in stops[row] or step + 1 >= lengths[row]:
                    lengths[row], active[row] = step + 1, False
            if not active.any():
                break
            mask = torch.cat([mask, torch.ones((size, 1), dtype=torch.long)], 1)
            inputs = tiny.embed(model, tokens[:, None], ())
            place = place[:, :, -1:].amax(0, keepdim=True).expand(tiny.axes, -1, -1) + 1
        return [
            Completion(tuple(said[row, : lengths[row]].tolist()), tuple(scores[row, : lengths[row]].tolist()))
            for row in range(size)
        ]

    def _choose(self, logits: torch.Tensor, generators: Sequence[torch.Generator]) -> tuple[torch.Tensor, torch.Tensor]:
        """Next tokens and their log-probabilities; logits of shape (batch, vocabulary), a generator per row."""
        log_probs = (logits / (self._temperature or 1.0)).log_softmax(-1)
        if self._temperature == 0:
            tokens = logits.argmax(-1)
        else:
            rows = zip(log_probs.exp(), generators, strict=True)
            tokens = torch.cat([torch.multinomial(row, 1, generator=generator) for row, generator in rows])
        return tokens, log_probs.gather(1, tokens[:, None])[:, 0]


class SeededEngine:
    """An engine for one episode, with a seed per turn; None continues the shared engine's sampling."""

    def __init__(self, engine: BatchEngine, seeds: Iterator[int | None]):
        self._engine, self._seeds = engine, seeds

    async def generate(self, request: GenerationRequest) -> Completion:
        """Generate a turn with the next seed."""
        return await self._engine.generate(request, seed=next(self._seeds))
