"""Seconds that a trainer's rank waits for pixels: made when they are asked for, and one micro-batch ahead.

    python -m benchmarks.throughput.pixels --out FOLDER

A rank takes micro-batches of VideoZoomer's frames three times, as a step does. The frame store is another process, and
patches are made by Qwen2.5-VL's image processor. The stand-in for the GPU sleeps: a micro-batch of 53,248 tokens takes
an H100 13 seconds (docs/gpu.md), whose patches a GPU makes 33 times as fast as a CPU.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("VERL_PLATFORM", "cpu")  # before anything imports verl

import ray
import torch
from tensordict import TensorDict
from transformers import AutoConfig, AutoProcessor
from verl.utils import tensordict_utils

from agentic_video.training.engines.actor import INPUTS, patched_inputs, shared_fetcher
from agentic_video.training.engines.pixels import PixelsAhead
from agentic_video.training.inputs.references import IMAGES, SequenceImages
from agentic_video.types.frame import ImageRef
from agentic_video.video.node_store import NodeFrameStore, node_id
from agentic_video.video.source import FrameRequest
from agentic_video.video.store_config import StoreConfig
from benchmarks.tables import table
from benchmarks.throughput.rollouts import make_model, make_video

PASSES = 3
"""Old log-probabilities, the reference model's, the update."""
SIZE = (448, 224)
FRAMES = 88
"""Of a sequence: VideoZoomer's typical episode."""


def micro_batches(video: Path, count: int) -> list[TensorDict]:
    """Micro-batches of one sequence each, whose frames are those of other moments of a video."""
    store, node = NodeFrameStore(StoreConfig()), node_id()

    async def shown(number: int) -> Any:
        indices = [number + 50 * place for place in range(FRAMES)]
        return (await store.serve(FrameRequest(str(video), indices, size=SIZE))).frames

    made = []
    for number in range(count):
        refs = tuple(ImageRef.of(frame, node) for frame in asyncio.run(shown(number)))
        batch = TensorDict({}, batch_size=[1])
        tensordict_utils.assign_non_tensor_stack(batch, INPUTS, [{IMAGES: SequenceImages(refs, StoreConfig()).pack()}])
        made.append(batch)
    return made


def measured(batches: Sequence[TensorDict], processor: Any, compute: float, *, ahead: bool) -> list[dict[str, Any]]:
    """Seconds of each pass, and those of waiting for pixels."""
    shared_fetcher.cache_clear()
    pixels, rows = PixelsAhead(), []

    def make(batch: TensorDict) -> Any:
        return patched_inputs(batch, processor, "cpu", torch.bfloat16)

    for number in range(PASSES):
        started, waited = time.perf_counter(), pixels.waited
        with pixels.one_pass(make) if ahead else nullcontext():
            pixels.expect(batches)
            for batch in batches:
                pixels.take(batch, make)
                time.sleep(compute)
        seconds, waited = time.perf_counter() - started, pixels.waited - waited
        rows.append({"pixels": "ahead" if ahead else "when asked", "pass": number + 1, "seconds": round(seconds, 1)})
        rows[-1] |= {"waited": round(waited, 2), "share": f"{waited / seconds:.1%}"}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for video, processor and pixels.json")
    parser.add_argument("--micro-batches", type=int, default=8, help="of a pass")
    parser.add_argument("--compute", type=float, default=4.0, help="seconds of the stand-in for a micro-batch")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    model = make_model(options.out)
    processor = AutoProcessor.from_pretrained(model)
    processor.config = AutoConfig.from_pretrained(model)
    batches = micro_batches(make_video(options.out / "video.mp4"), options.micro_batches)
    measured(batches, processor, 0.0, ahead=False)  # as after rollouts, the store has the frames
    rows = [row for kind in (False, True) for row in measured(batches, processor, options.compute, ahead=kind)]
    (options.out / "pixels.json").write_text(json.dumps(rows, indent=2))
    print(table(list(rows[0]), [[str(value) for value in row.values()] for row in rows]))


if __name__ == "__main__":
    main()
