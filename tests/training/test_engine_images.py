"""References to vLLM's own renderer and to both sides of its cache; what is made up is the engine behind them."""

import asyncio
import os
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from verl.utils import hf_processor

from agentic_video.families.base import UnkeptSizeError
from agentic_video.families.qwen2_5_vl_clips import keep_clip_times
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.training.engines.vllm_images import (
    ImageStats,
    MissingImages,
    ReferenceEngine,
    RenderedPromptError,
    references,
)
from agentic_video.types.frame import ImageRef, Origin, VideoRef, clip_key, image_key
from agentic_video.video.errors import VideoError

pytestmark = pytest.mark.anyio
SIDE = 28
PATCHES = (SIDE // 14) ** 2 * 3 * 2 * 14 * 14 * 4
"""Bytes of an image's float32 patches."""


def image(number: int) -> np.ndarray:
    """Different for each number, and not of one colour."""
    colours = np.random.default_rng(number).integers(0, 256, (4, 4, 3), np.uint8)
    return colours.repeat(SIDE // 4, 0).repeat(SIDE // 4, 1)


def stored(number: int) -> ImageRef:
    """The frame of a store."""
    return ImageRef(image_key(image(number)), SIDE, SIDE, Origin("film", number, None), "node")


def drawn(number: int) -> ImageRef:
    """A picture that a tool made, with its pixels."""
    return ImageRef(image_key(image(number)), SIDE, SIDE, image=image(number))


@dataclass
class Store:
    """Finds frames, after a moment."""

    calls: list[list[int]] = field(default_factory=list)
    fails: int = 0

    async def afetch(self, refs: Iterable[ImageRef]) -> dict[str, np.ndarray]:
        numbers = [ref.origin.index for ref in refs if ref.origin]
        self.calls.append(numbers)
        await asyncio.sleep(0.01)
        if self.fails:
            self.fails -= 1
            raise VideoError("film", "corrupt", "made to fail")
        return {image_key(image(number)): image(number) for number in numbers}


class Engine:
    """vLLM's engine, as far as its images go: a real renderer here, and a real cache on the other side."""

    errored = False

    def __init__(self, model: Path, cache_gb: float):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.multimodal.cache import MultiModalReceiverCache
        from vllm.renderers import renderer_from_config

        keep_clip_times()
        arguments = AsyncEngineArgs(
            model=str(model),
            dtype="float32",
            enforce_eager=True,
            max_model_len=1024,
            limit_mm_per_prompt={"image": 32, "video": 8},
            mm_processor_cache_gb=cache_gb,
        )
        config = arguments.create_engine_config()
        self.renderer: Any = renderer_from_config(config)
        self.there = MultiModalReceiverCache(config.model_config) if cache_gb else None
        self.taken: list[Any] = []
        self.refuses: list[Exception | str] = []

    async def generate(self, prompt: Any, sampling_params: Any, request_id: str) -> AsyncIterator[Any]:
        refused = self.refuses.pop() if self.refuses else None
        if isinstance(refused, Exception):
            raise refused
        end = "stop"
        if refused is not None or not self._arrives(prompt):
            end = "error"
        self.taken.append(prompt)
        await asyncio.sleep(0)
        ids = [1] if end == "stop" else []
        yield SimpleNamespace(finished=True, outputs=[SimpleNamespace(finish_reason=end, token_ids=ids)])

    def _arrives(self, prompt: Any) -> bool:
        """vLLM's ``EngineCore.preprocess_add_request``: takes what it has from its side of the cache."""
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

        if self.there is None or prompt.get("type") != "multimodal":
            return True
        features = [
            MultiModalFeatureSpec(item, kind, key, PlaceholderRange(0, 1), key)
            for kind, items in prompt["mm_kwargs"].items()
            for item, key in zip(items, prompt["mm_hashes"][kind], strict=True)
        ]
        try:
            self.there.get_and_update_features(features)
        except AssertionError:
            return False
        return True

    async def reset_mm_cache(self) -> None:
        await self.renderer.clear_mm_cache_async()
        await asyncio.sleep(0.002)  # the way to the other process and back
        if self.there is not None:
            self.there.clear_cache()

    async def pause_generation(self) -> None:
        await self.reset_mm_cache()

    async def sleep(self, level: int) -> None:
        await self.reset_mm_cache()

    def works(self) -> str:
        return "yes"


MakeEngine = Callable[..., Engine]


@pytest.fixture(scope="module")
def make_engine(checkpoint: Path) -> MakeEngine:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

    def make(images: float = 1000) -> Engine:
        """An engine whose cache holds so many images."""
        return Engine(checkpoint, images * PATCHES * 1.01 / 2**30)

    return make


async def ask(engine: ReferenceEngine, images: Sequence[Any], clips: Sequence[VideoRef] = ()) -> list[Any]:
    """One request; its outputs."""
    ids = [5, 6]
    tokenizer = engine.renderer.tokenizer
    start, pad, end = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"])
    for _ in images:
        ids += [start, pad, end]
    for _ in clips:
        ids += [start, tokenizer.convert_tokens_to_ids("<|video_pad|>"), end]
    data = {kind: list(items) for kind, items in (("image", images), ("video", clips)) if items}
    prompt = {"prompt_token_ids": [*ids, 7], "multi_modal_data": data}
    return [output async for output in engine.generate(prompt, None, "one")]


def counts(stats: ImageStats, *names: str) -> tuple[int, ...]:
    return tuple(getattr(stats, name) for name in names)


async def test_the_engine_gets_what_it_would_get_for_images(make_engine: MakeEngine) -> None:
    ours, stock = make_engine(), make_engine()
    engine = ReferenceEngine(ours, Store())
    await ask(engine, [stored(0), drawn(1), stored(0), stored(2)])
    numbers = [0, 1, 0, 2]
    start, pad, end = stock.renderer.tokenizer.convert_tokens_to_ids(
        ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]
    )
    ids = [5, 6, *[start, pad, end] * 4, 7]
    pictures = [Image.fromarray(image(number)) for number in numbers]
    (expected,) = stock.renderer.render_cmpl([{"prompt_token_ids": ids, "multi_modal_data": {"image": pictures}}])
    (rendered,) = ours.taken
    assert rendered["prompt_token_ids"] == expected["prompt_token_ids"]
    assert rendered["prompt_token_ids"].count(pad) == 4  # 28 x 28 pixels are a token
    assert rendered["mm_placeholders"] == expected["mm_placeholders"]
    assert rendered["mm_hashes"]["image"] == [image_key(image(number)) for number in numbers]
    pairs = list(zip(rendered["mm_kwargs"]["image"], expected["mm_kwargs"]["image"], strict=True))
    assert [pair is None for pair, _ in pairs] == [other is None for _, other in pairs] == [False, False, True, False]
    for pair, other in pairs:
        if pair is not None:
            assert {name: value.tolist() for name, value in pair.get_data().items()} == {
                name: value.tolist() for name, value in other.get_data().items()
            }


async def test_later_turns_and_siblings_send_nothing(make_engine: MakeEngine) -> None:
    store = Store()
    engine = ReferenceEngine(make_engine(), store)

    opening = [stored(number) for number in range(4)]
    await ask(engine, opening)
    later = [*opening, stored(7), drawn(9)]
    await ask(engine, later)
    await ask(engine, [*opening, stored(7), drawn(9).bare()])
    await ask(engine, [stored(7), drawn(9).bare(), *opening])  # a sibling
    assert store.calls == [[0, 1, 2, 3], [7]]
    size = SIDE * SIDE * 3
    assert counts(engine.stats, "requests", "asked", "fetched", "received", "processed") == (4, 22, 5, 1, 6)
    assert counts(engine.stats, "bytes_fetched", "bytes_received", "again") == (5 * size, size, 0)
    # what went to the engine's process: patches once, then nothing
    sent = [[item is not None for item in taken["mm_kwargs"]["image"]] for taken in engine.taken]
    assert sent == [[True] * 4, [False] * 4 + [True] * 2, [False] * 6, [False] * 6]


async def test_siblings_that_start_at_once_wait_for_the_first(make_engine: MakeEngine) -> None:
    store = Store()
    engine = ReferenceEngine(make_engine(), store)
    asked = ([stored(0), stored(1), stored(2 + number % 2)] for number in range(8))
    outputs = await asyncio.gather(*(ask(engine, images) for images in asked))
    assert all(item.outputs[0].token_ids == [1] for (item,) in outputs)
    assert sorted(number for call in store.calls for number in call) == [0, 1, 2, 3]
    assert counts(engine.stats, "asked", "fetched", "processed", "again") == (24, 4, 4, 0)
    assert engine._coming == {}


async def test_images_are_processed_in_another_thread(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = make_engine()
    threads = []
    apply = inner.renderer.mm_processor.apply

    def noted(*args: Any, **kwargs: Any) -> Any:
        threads.append(threading.current_thread())
        return apply(*args, **kwargs)

    monkeypatch.setattr(inner.renderer.mm_processor, "apply", noted)
    await ask(ReferenceEngine(inner, Store()), [stored(0)])
    assert len(threads) == 1 and threads[0] is not threading.main_thread()


async def test_a_tools_picture_that_is_gone_is_asked_for(make_engine: MakeEngine) -> None:
    engine = ReferenceEngine(make_engine(), Store())

    with pytest.raises(MissingImages) as caught:
        await ask(engine, [stored(0), drawn(1).bare(), drawn(2).bare()])
    assert caught.value.keys == (drawn(1).key, drawn(2).key)
    await ask(engine, [stored(0), drawn(1), drawn(2)])
    await ask(engine, [stored(0), drawn(1).bare(), drawn(2).bare()])
    await engine.reset_mm_cache()
    with pytest.raises(MissingImages):
        await ask(engine, [drawn(1).bare()])
    assert counts(engine.stats, "missing", "received", "processed", "resets") == (3, 2, 3, 1)
    assert len(engine.taken) == 2


@pytest.mark.parametrize("seed", range(4))
async def test_both_sides_of_a_small_cache_stay_the_same(make_engine: MakeEngine, seed: int) -> None:
    """Twelve frames for a cache of six, requests that overlap, and resets in between: nothing is ever refused."""
    chance = random.Random(seed)
    inner = make_engine(6)
    engine = ReferenceEngine(inner, Store())

    async def request() -> None:
        await asyncio.sleep(chance.random() / 20)
        numbers = chance.sample(range(12), chance.randint(1, 4))
        await ask(engine, [drawn(number) if chance.random() < 0.3 else stored(number) for number in numbers])

    async def reset() -> None:
        await asyncio.sleep(chance.random() / 20)
        await chance.choice([engine.reset_mm_cache, engine.pause_generation, lambda: engine.sleep(1)])()

    await asyncio.gather(*(request() for _ in range(40)), *(reset() for _ in range(3)))
    assert len(inner.taken) == 40  # none was refused and sent again
    assert inner.there is not None
    assert list(inner.there._cache) == list(inner.renderer.mm_processor_cache._cache)
    assert engine.stats.again > 0 and engine.stats.resets == 3


async def test_a_prompt_that_the_cache_cannot_hold_still_goes(make_engine: MakeEngine) -> None:
    """vLLM drops what it counts on when a prompt has both old and new images and more than fit."""
    engine = ReferenceEngine(make_engine(3), Store())

    await ask(engine, [stored(0), stored(1)])
    (output,) = await ask(engine, [stored(number) for number in (5, 6, 7, 0, 1)])
    assert output.outputs[0].token_ids == [1]


async def test_without_a_cache_all_is_sent_each_time(make_engine: MakeEngine) -> None:
    engine = ReferenceEngine(make_engine(0), Store())

    for _ in range(2):
        await ask(engine, [stored(0), drawn(1)])
    assert counts(engine.stats, "processed", "fetched") == (4, 2)


async def test_what_the_engine_refused_is_sent_again(make_engine: MakeEngine) -> None:
    inner = make_engine()
    store = Store()
    engine = ReferenceEngine(inner, store)

    await ask(engine, [stored(0)])
    # one side of the cache knows what the other doesn't
    assert inner.there is not None
    inner.there.clear_cache()
    (output,) = await ask(engine, [stored(0), stored(1)])
    assert output.outputs[0].token_ids == [1]
    # a request that is refused before it leaves: its image is on one side only
    inner.refuses.append(ValueError("too long"))
    with pytest.raises(ValueError, match="too long"):
        await ask(engine, [stored(2)])
    (output,) = await ask(engine, [stored(2)])
    assert output.outputs[0].token_ids == [1]
    # an engine that keeps refusing: its answer is passed on
    inner.refuses += ["no", "no"]
    (output,) = await ask(engine, [stored(2)])
    assert output.outputs[0].finish_reason == "error"
    assert store.calls == [[0], [1], [0, 1], [2], [2], [2]]


async def test_a_frame_that_cannot_be_had(make_engine: MakeEngine) -> None:
    store = Store(fails=1)
    engine = ReferenceEngine(make_engine(), store)

    answers = await asyncio.gather(*(ask(engine, [stored(0)]) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(answer, VideoError) for answer in answers)
    (output,) = await ask(engine, [stored(0)])
    assert output.outputs[0].token_ids == [1]
    assert store.calls == [[0], [0]] and engine._coming == {}


async def test_one_that_gives_up_takes_nothing_from_the_others(make_engine: MakeEngine) -> None:
    store = Store()
    engine = ReferenceEngine(make_engine(), store)

    first = asyncio.create_task(ask(engine, [stored(0)]))
    await asyncio.sleep(0)
    second = asyncio.create_task(ask(engine, [stored(0)]))
    await asyncio.sleep(0.001)
    first.cancel()
    (output,) = await second
    assert output.outputs[0].token_ids == [1]
    assert store.calls == [[0]]


async def test_other_prompts_go_as_they_are(make_engine: MakeEngine) -> None:
    inner = make_engine()
    engine = ReferenceEngine(inner, Store())
    picture = Image.fromarray(image(0))

    await ask(engine, [])
    await ask(engine, [picture])
    assert [taken["multi_modal_data"] for taken in inner.taken] == [{}, {"image": [picture]}]
    assert engine.stats == ImageStats()
    assert engine.works() == "yes"  # whatever else is asked of it


def clip(*frames: ImageRef, every: float = 0.75) -> VideoRef:
    times = tuple(every * number for number in range(len(frames)))
    return VideoRef(clip_key([frame.key for frame in frames], times), frames, times)


async def test_clips_are_made_of_frames_that_are_fetched_once(make_engine: MakeEngine, checkpoint: Path) -> None:
    store, inner = Store(), make_engine()
    engine = ReferenceEngine(inner, store, ChatFormat.of(hf_processor(str(checkpoint))))
    first = clip(stored(0), stored(1), stored(2))

    await ask(engine, [stored(1)], [first])
    # the same clip, and one with a picture that a tool made
    await ask(engine, [stored(1)], [first, clip(stored(0), drawn(9))])
    with pytest.raises(MissingImages) as caught:
        await ask(engine, [], [clip(stored(0), drawn(9).bare(), drawn(8).bare())])
    assert caught.value.keys == (drawn(9).key, drawn(8).key)
    # the same frames at other times are another clip
    await ask(engine, [], [first, clip(*first.frames, every=2.0)])
    assert [sorted(call) for call in store.calls] == [[0, 1, 2], [0], [0, 1, 2]]
    assert counts(engine.stats, "processed", "received", "missing", "again") == (4, 1, 2, 0)
    one, two, three = inner.taken
    assert one["mm_hashes"] == {"image": [stored(1).key], "video": [first.key]}
    # 28 x 28 pixels are a token; three frames are two moments
    pad = inner.renderer.tokenizer.convert_tokens_to_ids("<|video_pad|>")
    assert one["prompt_token_ids"].count(pad) == 2
    assert [[item is not None for item in taken["mm_kwargs"]["video"]] for taken in inner.taken] == [
        [True],
        [False, True],
        [False, True],
    ]
    # twice the distance of frames
    seconds = [taken["mm_kwargs"]["video"][-1].get_data()["second_per_grid_ts"].item() for taken in inner.taken]
    assert seconds == [1.5, 1.5, 4.0]
    assert two["mm_hashes"]["video"][0] == three["mm_hashes"]["video"][0] == first.key


async def test_a_size_that_the_processor_would_change_is_refused(make_engine: MakeEngine, checkpoint: Path) -> None:
    """vLLM would resize it on its CPU, the trainer on its device, and both have other patches."""
    engine = ReferenceEngine(make_engine(), Store(), ChatFormat.of(hf_processor(str(checkpoint))))
    odd = replace(stored(1), width=60, height=50)

    with pytest.raises(UnkeptSizeError, match="60x50"):
        await ask(engine, [odd])
    with pytest.raises(UnkeptSizeError, match="60x50"):
        await ask(engine, [], [clip(odd, odd)])


async def test_other_ids_than_the_rollout_s_are_refused(
    make_engine: MakeEngine, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat_format = ChatFormat.of(hf_processor(str(checkpoint)))
    inner = make_engine()
    engine = ReferenceEngine(inner, Store(), chat_format)
    made = chat_format.image_ids
    monkeypatch.setattr(chat_format, "image_ids", lambda *size: (made(*size)[0], made(*size)[1][:-1]))

    with pytest.raises(RenderedPromptError, match="0 clips and 1 images"):
        await ask(engine, [stored(0)])
    monkeypatch.undo()
    (output,) = await ask(engine, [stored(0)])
    assert output.outputs[0].token_ids == [1]
    assert len(inner.taken) == 1


async def test_an_engine_without_a_format_takes_no_clips(make_engine: MakeEngine) -> None:
    with pytest.raises(ValueError, match="shown no clips"):
        await ask(ReferenceEngine(make_engine(), Store()), [], [clip(stored(0), stored(1))])


def test_references_by_hand() -> None:
    assert references("text") == references({"prompt_token_ids": [1]}) == []
    assert references({"multi_modal_data": {"image": [1, 2]}}) == []
    refs = [stored(0), drawn(1)]
    assert references({"multi_modal_data": {"image": refs}}) == refs
    with pytest.raises(ValueError, match="1 of a prompt's 2 images are references"):
        references({"multi_modal_data": {"image": [stored(0), Image.new("RGB", (4, 4))]}})
