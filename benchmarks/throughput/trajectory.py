"""One trajectory of 64 and of 128 frames, and 64 episodes on one event loop: stock verl's worker and this package's.

    python -m benchmarks.throughput.trajectory --out FOLDER

Prints a table, and writes ``trajectory.json`` into the folder.
"""

import argparse
import asyncio
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import ray
import transfer_queue as tq

from agentic_video.families.qwen_vl_inputs import image_patches
from agentic_video.training.engines.actor import sequence_images
from agentic_video.video.fetch import FrameFetcher
from benchmarks.tables import size, table
from benchmarks.throughput.rollouts import SIDES, Heartbeat, Load, Side, Worker, counting, make_model, make_video

LOADS = {
    "64 frames": Load(overview=32, zooms=2),
    "128 frames": Load(overview=64, zooms=4),
}
CROWD = Load(questions=4, rollouts=16, overview=16, zooms=1, think=0.2)
"""64 episodes at once, of 32 frames (stock verl puts 5 GB of them into TransferQueue), with a model that takes 0.2 s a
turn."""


def measure(side: Side, name: str, load: Load, model: Path, video: Path) -> dict[str, Any]:
    """Play a load once to warm up what is shared (decoded frames, a tokenizer's tables), then again, and measure."""
    worker = Worker(side, model, video, load)
    asyncio.run(worker.play([1000]))
    worker.counts.submitted.clear()
    worker.client._asked.clear()
    counts = worker.counts
    stop = counting(counts)

    async def played() -> tuple[list[str], Heartbeat]:
        async with Heartbeat() as heart:
            return await worker.play(range(load.questions)), heart

    started = time.perf_counter()
    keys, heart = asyncio.run(played())
    seconds = time.perf_counter() - started
    put, processed = counts.put, counts.processed
    worker.client.finish()
    got = fetched = 0
    getting = time.perf_counter()
    for key in keys[:4]:  # what one rank takes, one sequence at a time
        before = counts.got
        batch = tq.kv_batch_get(keys=[key], partition_id="train")
        got += counts.got - before
        if images := [references for references in sequence_images(batch) if references]:
            fetcher = FrameFetcher(images[0].store)
            found = fetcher.fetch(ref for references in images for ref in references.images)
            image_patches(worker.worker.processor.image_processor, found)
            fetched += fetcher.stats.bytes
    getting = (time.perf_counter() - getting) / min(4, len(keys))
    stop()
    tq.kv_clear(keys=keys, partition_id="train")
    later = [sent for number, sent in enumerate(counts.sent) if number % (load.zooms + 1)] if len(keys) == 1 else []
    return {
        "load": name,
        "side": side,
        "episodes": len(keys),
        "frames": load.frames,
        "seconds": seconds,
        "put_bytes": put / len(keys),
        "got_bytes": got / min(4, len(keys)),
        "fetched_bytes": fetched / min(4, len(keys)),
        "get_seconds": getting,
        "processed": processed,
        "submit_ms": median(counts.submitted),
        "submit_ms_most": max(counts.submitted),
        "server_bytes": sum(counts.sent) / len(keys),
        "server_bytes_later": sum(later),
        "stall_ms_p50": heart.per_second(0.5),
        "stall_ms_p99": heart.per_second(0.99),
        "stall_ms_most": max(heart.stalls),
        "loop_ms": sum(stall for stall in heart.stalls if stall > 1.0),
    }


def figures(results: list[dict[str, Any]]) -> str:
    """The figures side by side."""
    head = "side, into TransferQueue, out of it once, frames fetched, to the server, submit a turn, "
    head += "processed in the worker, event loop blocked, longest stall"
    rows = [
        [
            result["load"],
            result["side"],
            *(size(result[f"{key}_bytes"]) for key in ("put", "got", "fetched", "server")),
            f"{result['submit_ms']:.1f} ms",
            str(result["processed"]),
            f"{result['loop_ms']:.0f} ms",
            f"{result['stall_ms_most']:.0f} ms",
        ]
        for result in results
    ]
    return table(["", *head.split(", ")], rows)


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/throughput"), help="folder of video, model and results"
    )
    parser.add_argument("--quick", action="store_true", help="short: one minute of video, few frames, four episodes")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    loads = {**LOADS, "64 episodes": CROWD}
    if options.quick:
        loads = {
            "few frames": Load(overview=8, zooms=1),
            "4 episodes": replace(CROWD, questions=2, rollouts=2, overview=8),
        }
    video = make_video(options.out / ("short.mp4" if options.quick else "video.mp4"), 1.0 if options.quick else 10.0)
    model = make_model(options.out)
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=2 << 30)
    tq.init()
    results = []
    for name, load in loads.items():
        for side in SIDES:
            results.append(measure(side, name, load, model, video))
            print(json.dumps(results[-1]), flush=True)
    (options.out / "trajectory.json").write_text(
        json.dumps({"loads": {n: asdict(v) for n, v in loads.items()}, "results": results}, indent=1)
    )
    print(figures(results))
    tq.close()
    ray.shutdown()


if __name__ == "__main__":
    main()
