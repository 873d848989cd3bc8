"""verl's actor on an episode whose second turn shows another frame, in a process of its own: ``python -m``.

Arguments: a folder, a video file, the model (a tiny one of benchmarks/gpu/shapes.py). Prints one line of JSON: the
log-probabilities of the responses as they were, with the other frame, and as they were again.
"""

import asyncio
import sys
from pathlib import Path

import ray

from agentic_video.types.frame import Frame
from agentic_video.types.message import Visual
from agentic_video.video.node_store import NodeFrameStore
from agentic_video.video.source import FrameRequest
from agentic_video.video.store_config import StoreConfig
from benchmarks.gpu.actor import Actor, ActorSetting
from benchmarks.gpu.sequences import Turn, make_sequence
from benchmarks.gpu.shapes import write_checkpoint
from tests.training.programs import report
from tests.training.updates import SIZES, with_references

TURNS = [Turn(2, 5, 7), Turn(1, 4, 6)]
SHOWN = [0, 30, 59], [0, 30, 12], [0, 30, 59]
"""Frames of the episode: the last is the second turn's."""


def main() -> None:
    folder, video, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    model = write_checkpoint(folder / name, name, dtype="float32", spread=1.0)
    actor = Actor(ActorSetting(model, "cpu", 4096, dtype="float32"))
    store = NodeFrameStore(StoreConfig())
    size = SIZES[name]

    async def frames() -> list[list[Frame]]:
        return [(await store.serve(FrameRequest(video, indices, size=size))).frames for indices in SHOWN]

    shown: list[list[Visual]] = [list(each) for each in asyncio.run(frames())]
    episodes = [make_sequence(TURNS, actor.chat_format, size, seed=0) for _ in shown]
    pixels = actor.batch(episodes, shown)
    found = {
        "mask": episodes[0].mask,
        "pixels": [each.tolist() for each in actor.log_probs(pixels)],
        "references": [each.tolist() for each in actor.log_probs(with_references(pixels, actor.processor, shown))],
    }
    report(found)


if __name__ == "__main__":
    main()
