"""Clips to a real vLLM engine, by reference and as pixels, and to the model itself.

An episode of two turns with images and clips, whose ids are the rollout's own, through verl's ``generate``.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText
from verl.utils import hf_processor

from agentic_video.evaluation.backends.vllm import vllm_prompt
from agentic_video.families.qwen2_vl import Qwen2VL
from agentic_video.families.registry import family_of
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.training.engines.vllm_images import ReferenceEngine, RenderedPromptError
from agentic_video.training.inputs.model_inputs import model_inputs
from agentic_video.types.frame import Clip, Frame, ImageRef, Origin, VideoRef, image_key
from agentic_video.types.message import Message, Visual
from tests.training.servers import server
from tests.training.test_engine_images import Store, counts

SAMPLING = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True, "logprobs": True}


def picture(number: int, side: int) -> np.ndarray:
    """Different for each number, and not of one colour."""
    return np.random.default_rng(number).integers(0, 256, (side, 2 * side, 3), np.uint8)


class Frames(Store):
    """The frames of a video, after a moment."""

    def __init__(self, side: int):
        super().__init__()
        self.side = side

    async def afetch(self, refs: Any) -> dict[str, np.ndarray]:
        numbers = [ref.origin.index for ref in refs]
        self.calls.append(numbers)
        await asyncio.sleep(0.01)
        return {image_key(picture(number, self.side)): picture(number, self.side) for number in numbers}

    def frame(self, number: int, time: float) -> Frame:
        """One of them."""
        image = picture(number, self.side)
        return Frame.stored(number, time, image, Origin("film", number, None), image_key(image))


def references(shown: Sequence[Visual]) -> dict[str, list[Any]]:
    """Images and clips as a rollout sends them."""
    images = [ImageRef.of(visual, "node") for visual in shown if not isinstance(visual, Clip)]
    clips = [VideoRef.of(visual, "node") for visual in shown if isinstance(visual, Clip)]
    return {"image_data": images, "video_data": clips}


class Model:
    """The Hugging Face model itself."""

    def __init__(self, checkpoint: Path, processor: Any):
        self._model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).eval()
        self._processor = processor

    @torch.no_grad()
    def log_probs(self, ids: Sequence[int], said: Sequence[int], shown: Sequence[Visual]) -> list[float]:
        """Of what was said after a prompt, from the positions and inputs that the trainer has."""
        whole = torch.tensor([*ids, *said])
        positions, inputs = model_inputs(self._processor, whole, shown)
        whole, inputs = family_of(self._processor).in_one_pass(self._processor, whole, inputs)
        given = {name: inputs[name] for name in ("pixel_values", "image_grid_thw")}
        logits = self._model(input_ids=whole[None], position_ids=positions[:, None], **given).logits[0]
        scores = logits[len(ids) - 1 : -1].log_softmax(-1)
        return scores.gather(1, torch.tensor(said)[:, None])[:, 0].tolist()


async def compare(engine: Any, checkpoint: Path) -> None:
    from vllm import SamplingParams

    processor = hf_processor(str(checkpoint))
    chat_format, model = ChatFormat.of(processor), Model(checkpoint, processor)
    store = Frames(processor.image_processor.patch_size * 2)
    ours = ReferenceEngine(engine, store, chat_format)
    banned = dict.fromkeys(chat_format.banned_ids, -100.0)
    front = server(ours)
    front.model_config.processor = processor

    async def by_reference(ids: Sequence[int], shown: Sequence[Visual]) -> Any:
        sampling = {**SAMPLING, "logit_bias": banned}
        return await front.generate(list(ids), sampling, uuid4().hex, **references(shown))

    async def by_pixels(ids: Sequence[int], shown: Sequence[Visual]) -> list[int]:
        sampling = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, logit_bias=banned)
        async for output in engine.generate(vllm_prompt(ids, shown, chat_format), sampling, uuid4().hex):
            assert output.prompt_token_ids == list(ids)
            said = list(output.outputs[0].token_ids)
        return said

    async def same(ids: Sequence[int], shown: Sequence[Visual]) -> list[int]:
        output = await by_reference(ids, shown)
        assert output.token_ids == await by_pixels(ids, shown) and len(output.token_ids) == 6
        expected = model.log_probs(ids, output.token_ids, shown)
        assert output.log_probs == pytest.approx(expected, abs=1e-4), (output.log_probs, expected)
        return list(output.token_ids)

    frame = store.frame
    # five frames, the last of which stands for two; an image; four frames at uneven times
    first = Clip(tuple(frame(number, 1.3 * number) for number in range(5)))
    single = frame(9, 30.5)
    second = Clip(tuple(frame(number, time) for number, time in ((3, 40.0), (5, 41.5), (6, 43.0), (7, 47.25))))
    opening = Message("user", ("look <", first, " and", single, " at <", second, "> what?"))
    ids = chat_format.opening_ids([opening])
    said = await same(ids, [first, single, second])
    assert counts(ours.stats, "processed", "fetched", "asked") == (3, 9, 3)
    # two clips share a frame, which is fetched once
    assert sorted(store.calls[0]) == [0, 1, 2, 3, 4, 5, 6, 7, 9]

    # it looks at its clips, and at their times
    other = Clip(tuple(frame(20 + number, 1.3 * number) for number in range(5)))
    slower = Clip(tuple(frame(number, 9.0 * number) for number in range(5)))
    seen = await by_reference(ids, [first, single, second])
    assert (await by_reference(ids, [other, single, second])).log_probs != seen.log_probs
    late = chat_format.opening_ids([Message("user", ("look <", slower, " and", single, " at <", second, "> what?"))])
    timeless = isinstance(family_of(processor), Qwen2VL)
    assert ((await by_reference(late, [slower, single, second])).log_probs == seen.log_probs) == timeless
    await same(late, [slower, single, second])

    # the next turn: what was shown is named only
    before = ours.stats.processed
    third = Clip((frame(30, 50.0), frame(31, 50.5)))
    later = [*ids, *said, *chat_format.observation_ids(("<tool_response>", third, "</tool_response>"), said)]
    await same(later, [first, single, second, third])
    assert ours.stats.processed == before + 1

    # siblings that start at once
    fresh = Clip((frame(40, 1.0), frame(41, 2.0), frame(42, 3.0)))
    asked = chat_format.opening_ids([Message("user", (fresh, "?"))])
    answers = await asyncio.gather(*(by_reference(asked, [fresh]) for _ in range(6)))
    assert len({tuple(answer.token_ids) for answer in answers}) == 1
    assert ours.stats.processed == before + 2

    # another processor than the trainer's is noticed
    told = chat_format.visual_tokens
    chat_format.visual_tokens = lambda shown: 2 * told(shown)  # type: ignore[method-assign]
    with pytest.raises(RenderedPromptError):
        await by_reference(ids, [first, single, second])
    chat_format.visual_tokens = told  # type: ignore[method-assign]
    await same(ids, [first, single, second])
