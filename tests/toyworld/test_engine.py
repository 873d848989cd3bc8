import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.policy import EngineError
from agentic_video.toyworld.engine import BatchEngine
from agentic_video.toyworld.model import load_checkpoint
from agentic_video.types.frame import Frame

PROMPTS = (
    "<|im_start|>user\nWhat colour?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\n<frame0_time1.00s><|vision_start|><|image_pad|><|vision_end|> What shape flashes at 42 s?",
)


def _generate(
    checkpoint: Path, prompts: tuple[str, ...], temperature: float, banned: frozenset[int]
) -> list[Completion]:
    model, tokenizer = load_checkpoint(checkpoint)
    engine = BatchEngine(model, tokenizer, temperature=temperature)
    frame = Frame(0, 0.0, np.full((28, 28, 3), 90, np.uint8))

    async def run() -> list[Completion]:
        return await asyncio.gather(
            *(
                engine.generate(
                    GenerationRequest(
                        tokenizer(prompt)["input_ids"],
                        [frame] * prompt.count("<|image_pad|>"),
                        stop=("</video_zoom>",),
                        max_tokens=6,
                        banned_ids=banned,
                    )
                )
                for prompt in prompts
            )
        )

    return asyncio.run(run())


def test_a_batch_gives_what_single_requests_give(checkpoint: Path) -> None:
    together = _generate(checkpoint, PROMPTS, 0.0, frozenset())
    for prompt, completion in zip(PROMPTS, together, strict=True):
        (alone,) = _generate(checkpoint, (prompt,), 0.0, frozenset())
        assert alone.token_ids == completion.token_ids
        assert alone.log_probs is not None and completion.log_probs is not None
        assert np.allclose(alone.log_probs, completion.log_probs, atol=1e-4)


def test_log_probs_are_the_models(checkpoint: Path) -> None:
    model, tokenizer = load_checkpoint(checkpoint)
    (completion,) = _generate(checkpoint, PROMPTS[:1], 1.0, frozenset())
    assert completion.log_probs is not None
    prompt = tokenizer(PROMPTS[0])["input_ids"]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + list(completion.token_ids)])).logits[0]
    expected = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    for row, token, log_prob in zip(expected, completion.token_ids, completion.log_probs, strict=True):
        assert abs(float(row[token]) - log_prob) < 1e-4


def test_a_request_s_seed_gives_the_same_tokens_in_any_batch(checkpoint: Path) -> None:
    model, tokenizer = load_checkpoint(checkpoint)
    ids = tokenizer(PROMPTS[0])["input_ids"]

    async def say(seeds: list[int | None]) -> list[tuple[int, ...]]:
        engine = BatchEngine(model, tokenizer, temperature=1.0)
        request = GenerationRequest(ids, [], stop=(), max_tokens=8, banned_ids=())
        asked = (engine.generate(request, seed=seed) for seed in seeds)
        return [completion.token_ids for completion in await asyncio.gather(*asked)]

    first, second = asyncio.run(say([1, 2]))
    assert first != second
    assert asyncio.run(say([None, 2, None, 1]))[1::2] == [second, first]


def test_banned_ids_never_come(checkpoint: Path) -> None:
    banned = frozenset(range(400))
    for completion in _generate(checkpoint, PROMPTS * 8, 1.0, banned):
        assert not banned & set(completion.token_ids)


def test_stops_after_a_stop_token(checkpoint: Path) -> None:
    _, tokenizer = load_checkpoint(checkpoint)
    stop = tokenizer.convert_tokens_to_ids("</video_zoom>")
    everything_else = frozenset(range(len(tokenizer))) - {stop}
    for completion in _generate(checkpoint, PROMPTS, 1.0, everything_else):
        assert completion.token_ids == (stop,)


def test_a_stop_text_of_several_tokens_is_refused(checkpoint: Path) -> None:
    model, tokenizer = load_checkpoint(checkpoint)

    async def run(engine: Any) -> None:
        await engine.generate(GenerationRequest([1, 2], [], stop=("no such tag",), max_tokens=2, banned_ids=()))

    with pytest.raises(EngineError, match="one token"):
        asyncio.run(run(BatchEngine(model, tokenizer)))
