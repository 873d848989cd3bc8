"""verl's ``generate`` in front of a real vLLM engine, with references and with images: ``python -m`` and a checkpoint.

An episode of two turns, a sibling, siblings that start at once, and a picture that the server has lost.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from PIL import Image

from agentic_video.training.engines.vllm_images import ReferenceEngine
from tests.e2e.vllm_engine import run_script, vllm_engine
from tests.training.servers import server
from tests.training.test_engine_images import Store, counts, drawn, image, stored

SAMPLING = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True, "logprobs": True}


async def compare(checkpoint: Path) -> None:
    async with vllm_engine(checkpoint, images=32) as engine:
        await engine.reset_mm_cache()
        store = Store()
        ours = ReferenceEngine(engine, store)
        words = engine.renderer.tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"])

        def prompt(*pictures: int) -> list[int]:
            ids = [11, 12]
            for number in pictures:
                ids += [*words, 20 + number]
            return ids

        async def say(engine: Any, ids: Sequence[int], images: Sequence[Any]) -> Any:
            return await server(engine).generate(list(ids), dict(SAMPLING), uuid4().hex, image_data=images)

        async def same(ids: Sequence[int], refs: Sequence[Any], numbers: Sequence[int]) -> list[int]:
            by_reference = await say(ours, ids, refs)
            by_image = await say(engine, ids, [Image.fromarray(image(number)) for number in numbers])
            assert by_reference.token_ids == by_image.token_ids and len(by_reference.token_ids) == 6
            assert by_reference.log_probs == pytest.approx(by_image.log_probs, abs=1e-5)
            return list(by_reference.token_ids)

        opening = [stored(number) for number in range(3)]
        said = await same(prompt(0, 1, 2), opening, [0, 1, 2])
        # it looks at its images: with others it says something else, or is less sure
        other = await say(ours, prompt(0, 1, 2), [stored(number) for number in (7, 8, 9)])
        assert other.log_probs != (await say(ours, prompt(0, 1, 2), opening)).log_probs
        assert counts(ours.stats, "processed", "fetched") == (6, 6)

        later = [*prompt(0, 1, 2), *said, *prompt(3, 4)]
        await same(later, [*opening, stored(3), drawn(4)], [0, 1, 2, 3, 4])
        await same(later, [*opening, stored(3), drawn(4).bare()], [0, 1, 2, 3, 4])
        assert counts(ours.stats, "processed", "fetched", "received", "again") == (8, 7, 1, 0)

        # siblings that start at once
        fresh = [stored(number) for number in (20, 21)]
        answers = await asyncio.gather(*(say(ours, prompt(5, 6), fresh) for _ in range(6)))
        assert len({tuple(answer.token_ids) for answer in answers}) == 1
        assert counts(ours.stats, "processed", "fetched") == (10, 9)

        # as verl does after a weight update
        await ours.reset_prefix_cache(reset_connector=True)
        await ours.reset_mm_cache()
        await ours.reset_encoder_cache()
        lost = await say(ours, later, [*opening, stored(3), drawn(4).bare()])
        assert (lost.token_ids, lost.stop_reason, lost.extra_fields["missing"]) == (
            [],
            "missing_images",
            [drawn(4).key],
        )
        await same(later, [*opening, stored(3), drawn(4)], [0, 1, 2, 3, 4])
        assert counts(ours.stats, "processed", "again", "missing", "resets") == (15, 0, 1, 1)


if __name__ == "__main__":
    run_script(compare)
