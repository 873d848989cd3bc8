"""An update of verl's actor from pixels and one from references, in a process of its own: ``python -m``.

Arguments: a folder, a video file, the model (a tiny one of benchmarks/gpu/shapes.py), ``images`` or ``clips``. Prints
one line of JSON.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray

from agentic_video.families.registry import family_of
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.training.engines.actor import shared_fetcher
from agentic_video.training.inputs.references import IMAGES, SequenceImages
from agentic_video.types.frame import Clip, Frame, ImageRef, VideoRef
from agentic_video.types.message import Message, Visual
from agentic_video.video.node_store import STORE_PREFIX, NodeFrameStore, node_id
from agentic_video.video.source import FrameRequest
from agentic_video.video.store_config import StoreConfig
from benchmarks.gpu.actor import Actor, ActorSetting
from benchmarks.gpu.sequences import Episode, Turn, make_sequence
from benchmarks.gpu.shapes import write_checkpoint
from tests.training.programs import report, weights_digest

SIZES = {"tiny": (56, 112), "tiny-qwen3_vl": (64, 128)}
"""Of a frame in pixels, as each model's processor keeps it."""
SHOWN = [[0, 30, 59, 2, 31, 4], [0, 30, 59, 30, 0, 7]]
"""Frames of the two episodes of a group: they share the opening, and one asks for a frame twice."""


def frames_of(video: str, size: tuple[int, int]) -> list[list[Frame]]:
    """The frames of each episode; the last is a picture that a tool made: the frame upside down."""
    store = NodeFrameStore(StoreConfig())

    async def get() -> list[list[Frame]]:
        return [(await store.serve(FrameRequest(video, indices, size=size))).frames for indices in SHOWN]

    shown = asyncio.run(get())
    return [[*frames[:-1], replace(frames[-1], time=99.0, image=frames[-1].image[::-1].copy())] for frames in shown]


def episode_of(frames: Sequence[Frame], chat_format: ChatFormat, seed: int) -> tuple[Episode, list[Visual]]:
    """An episode with clips: three frames as one; then an image, and two frames as one."""
    first, second = Clip(tuple(frames[:3])), Clip(tuple(frames[4:]))
    words = np.random.default_rng(seed).integers(0, 200, (2, 6)).tolist()
    shown = chat_format.observation_ids(("so ", frames[3], " and", second), words[0])
    response = [*words[0], *shown, *words[1]]
    mask = [1] * 6 + [0] * len(shown) + [1] * 6
    prompt = chat_format.opening_ids([Message("user", ("look", first))])
    return Episode(prompt, response, mask), [first, frames[3], second]


def with_references(batch: Any, processor: Any, shown: Sequence[Sequence[Visual]]) -> Any:
    """The batch with what a rollout sends in place of pixels."""
    from verl.utils import tensordict_utils as tu

    made = []
    for visuals in shown:
        refs = tuple((VideoRef if isinstance(visual, Clip) else ImageRef).of(visual, node_id()) for visual in visuals)
        sizes = family_of(processor).sizes(processor, refs)
        made.append({**sizes, IMAGES: SequenceImages(refs, StoreConfig()).pack()})
    copy = batch.copy()
    tu.assign_non_tensor_stack(copy, "multi_modal_inputs", made)
    return copy


def lose_the_store() -> None:
    """As when the process that holds a node's frames dies."""
    ray.kill(ray.get_actor(f"{STORE_PREFIX}-{node_id()}"))


def updated(model: Path, frames: Sequence[Sequence[Frame]], *, clips: bool, references: bool) -> dict[str, Any]:
    """What one update does: log-probabilities before, metrics, and the weights after it."""
    actor = Actor(ActorSetting(model, "cpu", 4096, dtype="float32", learning_rate=1e-2))
    shown: list[list[Visual]] = [list(frame) for frame in frames]
    turns = [Turn(3, 5, 7), Turn(3, 4, 6)]
    episodes = [make_sequence(turns, actor.chat_format, SIZES[model.name], seed) for seed in range(len(shown))]
    if clips:
        chat_format = ChatFormat.of(actor.processor)
        made = [episode_of(frame, chat_format, seed) for seed, frame in enumerate(frames)]
        episodes, shown = [episode for episode, _ in made], [visuals for _, visuals in made]
    batch = actor.batch(episodes, shown)
    if references:
        batch = with_references(batch, actor.processor, shown)
    before = actor.log_probs(batch)
    data = actor.with_targets(batch, [item - 0.1 for item in before], [1.0, -0.5])
    if references:
        lose_the_store()
    metrics = actor.update(data)
    timing = ("mfu", "memory", "time", "throughput", "wait")
    fetcher = shared_fetcher(StoreConfig()) if references else None
    return {
        "engine": type(actor.worker.actor.engine).__name__,
        "log_probs": [item.tolist() for item in before],
        "metrics": {name: value for name, value in metrics.items() if not any(word in name for word in timing)},
        "weights": weights_digest(actor),
        "fetched": None if fetcher is None else vars(fetcher.stats),
    }


def main() -> None:
    folder, video, name, clips = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "clips"
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    model = write_checkpoint(folder / name, name, dtype="float32", spread=1.0)
    frames = frames_of(video, SIZES[name])
    report([updated(model, frames, clips=clips, references=kind) for kind in (False, True)])


if __name__ == "__main__":
    main()
