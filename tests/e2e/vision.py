"""What a real vLLM engine makes of a picture.

A vision tower that a weight sync has changed, while its pictures and their prompts are in the engine's caches; and a
later turn's frame that is another one, while its ids are the same.
"""

import asyncio
import threading
from collections.abc import Coroutine, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import torch
from transformers import AutoProcessor

from agentic_video.evaluation.backends.vllm import vllm_prompt
from agentic_video.families.registry import family_of
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.toyworld.model import load_checkpoint
from agentic_video.training.engines.vllm_images import ReferenceEngine
from agentic_video.types.frame import Frame, ImageRef
from agentic_video.types.message import Message
from tests.e2e.vllm_engine import JOB
from tests.training.servers import server
from tests.training.test_engine_images import Store, drawn, image, stored

SAMPLING = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True, "logprobs": True}
AHEAD = 1e-3
"""Log-probabilities that differ by more have another cause than rounding."""


class Task:
    """What a call of an actor's method gives, for a coroutine of another thread's event loop."""

    def __init__(self, work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop):
        self._future: Future[Any] = asyncio.run_coroutine_threadsafe(work, loop)

    def future(self) -> Future[Any]:
        """As Ray's."""
        return self._future

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self._future).__await__()


def remote(method: Any, loop: asyncio.AbstractEventLoop) -> Any:
    """A server's method as an actor's."""
    return SimpleNamespace(remote=lambda *args, **kwargs: Task(method(*args, **kwargs), loop))


async def sync_weights(there: Any, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    """verl's own sync of an actor's weights to a server, caches included; the actor's side in a thread of its own."""
    from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

    loop = asyncio.get_running_loop()

    async def set_global_steps(step: int) -> None:
        there.global_steps = step

    adapter = object.__new__(ServerAdapter)
    adapter.config = SimpleNamespace(checkpoint_engine=SimpleNamespace(update_weights_bucket_megabytes=1))
    adapter.zmq_handle = f"ipc:///tmp/rl-colocate-zmq-{JOB}-replica-0-rank-0.sock"
    adapter.use_shm, adapter.replica_rank, adapter.rollout_rank, adapter._has_server = True, 0, 0, True
    adapter._ensure_server_handle = lambda: True
    adapter.server_handle = SimpleNamespace(
        collective_rpc=remote(there.collective_rpc, loop),
        clear_kv_cache=remote(there.clear_kv_cache, loop),
        set_global_steps=remote(set_global_steps, loop),
    )
    failed: list[BaseException] = []

    def send() -> None:
        try:
            asyncio.run(adapter.update_weights(iter(weights), global_steps=8))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0.05)
    if failed:
        raise failed[0]


class Asked:
    """A conversation of two turns with a frame each, by its ids."""

    def __init__(self, chat_format: ChatFormat):
        self._format = chat_format
        sized = Frame(0, 0.0, image(0))
        self.opening = chat_format.opening_ids([Message("user", ("look ", sized, " what is it?"))])
        self.observed = chat_format.observation_ids((" and now ", sized, " say more"), [20, 21])

    @property
    def ids(self) -> list[int]:
        """Both turns; the placeholders expanded."""
        return [*self.opening, 20, 21, *self.observed]

    def short(self) -> list[int]:
        """The same with one placeholder for each frame, as verl's server is asked."""
        return self._format.family.one_placeholder(self._format.encode, self.ids)


def expected(
    model: Any, processor: Any, ids: Sequence[int], numbers: Sequence[int], said: Sequence[int]
) -> list[float]:
    """Log-probabilities of what was said, by transformers' model."""
    made = processor.image_processor(images=[image(number) for number in numbers], return_tensors="pt")
    pictures = {name: value for name, value in made.items() if not name.startswith("num_")}
    rows = torch.tensor([[*ids, *said]])
    kinds = (rows == model.config.image_token_id).long()
    with torch.no_grad():
        logits = model(
            input_ids=rows, attention_mask=torch.ones_like(rows), mm_token_type_ids=kinds, use_cache=False, **pictures
        ).logits[0]
    found = logits[len(ids) - 1 : -1].float().log_softmax(-1)
    return [float(found[place, token]) for place, token in enumerate(said)]


def changed(weights: Mapping[str, torch.Tensor], tower: str) -> dict[str, torch.Tensor]:
    """Weights of which those of the vision tower, and no others, are other ones."""
    torch.manual_seed(1)
    made = {
        name: value + 0.5 * value.std() * torch.randn_like(value)
        if tower in name.split(".") and value.dim() > 1
        else value
        for name, value in weights.items()
    }
    assert any(made[name] is not value for name, value in weights.items())
    return made


async def compare(engine: Any, checkpoint: Path) -> None:
    model, _ = load_checkpoint(checkpoint)
    processor = AutoProcessor.from_pretrained(checkpoint)
    asked = Asked(ChatFormat.of(processor))
    there = server(ReferenceEngine(engine, Store()))
    there.node_rank = 0

    async def by_reference(*refs: ImageRef) -> Any:
        return await there.generate(asked.short(), dict(SAMPLING), uuid4().hex, image_data=list(refs))

    await later_frames(by_reference, engine, asked, model, processor)
    await changed_tower(by_reference, there, asked, model, processor)


async def later_frames(by_reference: Any, engine: Any, asked: Asked, model: Any, processor: Any) -> None:
    """The second turn's frame is another one: with references to stored frames, with pictures that a tool made, and
    with the engine of an evaluation. The ids are the same, and the first answer's blocks and picture are cached."""

    async def in_process(*numbers: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        frames = [Frame(number, float(number), image(number)) for number in numbers]
        sampling = SamplingParams(
            temperature=0.0, max_tokens=6, ignore_eos=True, logprobs=0, output_kind=RequestOutputKind.FINAL_ONLY
        )
        prompt = vllm_prompt(asked.ids, frames, asked._format)
        async for found in engine.generate(prompt, sampling, uuid4().hex):
            said = found.outputs[0]
        numbers_of = [step[token].logprob for step, token in zip(said.logprobs, said.token_ids, strict=True)]
        return SimpleNamespace(token_ids=list(said.token_ids), log_probs=numbers_of)

    async def stored_frames(*numbers: int) -> Any:
        return await by_reference(*map(stored, numbers))

    async def drawn_last(*numbers: int) -> Any:
        return await by_reference(*map(stored, numbers[:-1]), drawn(numbers[-1]))

    answers = []
    for ask in (stored_frames, drawn_last, in_process):
        first, other, again = await ask(0, 1), await ask(0, 2), await ask(0, 1)
        assert again.token_ids == first.token_ids
        assert again.log_probs == pytest.approx(first.log_probs, abs=1e-5)
        unmoved = expected_of(model, processor, asked, (0, 1), other)
        moved = max(abs(new - old) for new, old in zip(other.log_probs, unmoved, strict=True))
        assert moved > AHEAD, (ask.__name__, other.log_probs)
        for numbers, said in (((0, 1), first), ((0, 2), other)):
            assert said.log_probs == pytest.approx(expected_of(model, processor, asked, numbers, said), abs=1e-3)
        answers.append([*first.log_probs, *other.log_probs])
    assert answers[1] == pytest.approx(answers[0], abs=1e-5)
    assert answers[2] == pytest.approx(answers[0], abs=1e-5)


def expected_of(model: Any, processor: Any, asked: Asked, numbers: Sequence[int], said: Any) -> list[float]:
    """See :func:`expected`."""
    return expected(model, processor, asked.ids, numbers, said.token_ids)


async def changed_tower(by_reference: Any, there: Any, asked: Asked, model: Any, processor: Any) -> None:
    """The vision tower's weights, and no others, are synced, with the same pictures in the engine's caches."""
    pictures = stored(0), drawn(1)
    before = await by_reference(*pictures)
    assert (await by_reference(*pictures)).log_probs == pytest.approx(before.log_probs, abs=1e-6)  # from the caches
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    other = changed(weights, family_of(model).tower)
    await sync_weights(there, other.items())
    assert there.global_steps == 8
    after = await by_reference(*pictures)
    model.load_state_dict(other)
    told = expected_of(model, processor, asked, (0, 1), after)
    assert after.log_probs == pytest.approx(told, abs=1e-3)
    model.load_state_dict(weights)
    stale = expected_of(model, processor, asked, (0, 1), after)
    assert max(abs(new - old) for new, old in zip(after.log_probs, stale, strict=True)) > 10 * AHEAD
    await sync_weights(there, weights.items())
    back = await by_reference(*pictures)
    assert back.token_ids == before.token_ids and back.log_probs == pytest.approx(before.log_probs, abs=1e-5)
