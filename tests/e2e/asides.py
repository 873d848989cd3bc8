"""Asides on a real vLLM engine behind verl's ``generate``, frames by reference.

An episode whose model is asked beside it, twice at a time and after the end, against the same episode without asides,
and each aside against the engine asked for the same ids with images.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from PIL import Image
from transformers import AutoProcessor

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy, TokenSequence
from agentic_video.systems.base import EpisodeView, System
from agentic_video.training.engines.vllm_images import ReferenceEngine
from agentic_video.training.loop.agent_loop import VerlEngine
from agentic_video.types.action import Action, Calls, Illegal, ToolCall
from agentic_video.types.message import Message, Observation
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import EndReason, Trajectory
from tests.training.servers import server
from tests.training.test_agent_loop import MemoryStore
from tests.training.test_engine_images import Store

SAMPLING = {"temperature": 0.0, "logprobs": True, "ignore_eos": True}
LIMITS = TokenLimits(prompt=200, response=400, turn=6)
QA = VideoQA("q", "memory", "What flashes?", "it", answer_type="open_ended")


@dataclass(frozen=True)
class Looker(System):
    """Whatever is said is a look, which shows the frame with the turn's number."""

    side: int
    name: str = "looker"
    max_turns: int = 3
    max_images: int = 9
    stop: tuple[str, ...] = ()
    reply_prefix: str = "<think>"
    train_asides: bool = True
    asks: bool = True

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        return (Message("user", (*await view.video.frames([0], (self.side, self.side)), view.qa.question)),)

    def parse(self, text: str) -> Action:
        return Calls((ToolCall("look", {}),))

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        frames = await view.video.frames([50 * len(view.turns)], (self.side, self.side))
        if self.asks:
            asked = [Message("user", (*frames, text)) for text in ("What is this?", "Where is this?")]
            await asyncio.gather(*(view.ask([item], max_tokens=6, prefix="<answer>") for item in asked))
        return Observation(("seen: ", *frames), legal_calls=1)

    async def after(self, trajectory: Trajectory, view: EpisodeView) -> Mapping[str, Any]:
        return {"verdict": (await view.ask([Message("user", ("Sure?",))], max_tokens=4)).text} if self.asks else {}

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        raise NotImplementedError


class Client:
    """verl's client, of one server."""

    def __init__(self, engine: Any, processor: Any):
        self._server = server(engine, processor)

    async def generate(self, *, prompt_ids: Sequence[int], sampling_params: Any, image_data: Any, **rest: Any) -> Any:
        return await self._server.generate(list(prompt_ids), sampling_params, uuid4().hex, image_data=image_data)


def said(sequence: TokenSequence) -> tuple[list[int], list[float]]:
    """The generated ids of a sequence, and their log-probabilities."""
    kept = [number for number, mask in enumerate(sequence.response_mask) if mask]
    return [sequence.response_ids[item] for item in kept], [sequence.log_probs[item] for item in kept]


async def compare(engine: Any, checkpoint: Path) -> None:
    ours, processor = ReferenceEngine(engine, Store()), AutoProcessor.from_pretrained(checkpoint)
    chat_format = ChatFormat.of(processor)
    side = chat_format.family.tiny.frame_side

    async def episode(system: Looker) -> tuple[Trajectory, TokenPolicy]:
        policy = TokenPolicy(VerlEngine(Client(ours, processor), SAMPLING, "one"), chat_format, LIMITS, system)
        return await play(system, policy, QA, MemoryStore()), policy

    trajectory, policy = await episode(Looker(side))
    plain, alone = await episode(Looker(side, asks=False))
    assert trajectory.end is plain.end is EndReason.TURN_LIMIT, (trajectory.error, plain.error)
    # what is asked beside an episode changes nothing in it
    assert [turn.text for turn in trajectory.turns] == [turn.text for turn in plain.turns]
    (mine,), (other,) = policy.sequences, alone.sequences
    assert (mine.ids, mine.response_mask) == (other.ids, other.response_mask)
    assert mine.log_probs == pytest.approx(other.log_probs, abs=1e-4)
    assert all(turn.text.startswith("<think>") for turn in trajectory.turns)

    # two after each of the two calls that were carried out, one after the end
    assert [len(turn.asides) for turn in trajectory.turns] == [2, 2, 0] and len(trajectory.asides) == 1
    assert trajectory.notes == {"verdict": trajectory.asides[0].text}
    assert len(policy.aside_sequences) == 5
    assert sorted(aside.token_ids for aside in trajectory.all_asides) == sorted(
        tuple(said(item)[0]) for item in policy.aside_sequences
    )
    for sequence in policy.aside_sequences:
        ids, log_probs = said(sequence)
        sampling = {
            **SAMPLING,
            "max_tokens": len(ids),
            "logit_bias": dict.fromkeys(chat_format.banned_ids, -100.0),
        }
        images = [Image.fromarray(visual.image) for visual in sequence.visuals]  # type: ignore[union-attr]
        again = await server(engine, processor).generate(
            sequence.prompt_ids, sampling, uuid4().hex, image_data=images or None
        )
        assert (again.token_ids, len(ids) > 0) == (ids, True)
        assert log_probs == pytest.approx(again.log_probs, abs=1e-4)
        begun = chat_format.prefix_ids("<answer>") if images else []
        header = chat_format.opening_ids([Message("user", ("",))])[-1:]
        assert sequence.prompt_ids[-1 - len(begun) :] == [*header, *begun]
