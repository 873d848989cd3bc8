"""A step of VideoZoomer at a sixteenth of its size over two Ray nodes: 128 trajectories of 88 frames.

    python -m benchmarks.throughput.step --out FOLDER

Stand-ins are the engines, which say what they are told to, and the trainer's ranks, which take their sequences three
times and make the model's inputs of them. Everything between them is real: episodes, frame stores, Ray, TransferQueue.
Stock verl's float32 patches of 128 trajectories don't fit a small machine: both sides play ``--stock`` questions, and
references then play all. Prints a table, and writes ``step.json`` into the folder. Memory is the whole machine's: let
nothing else run.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import ray
import transfer_queue as tq
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.workers.rollout.replica import TokenOutput

from agentic_video.families.registry import family_of
from agentic_video.launch.ray_nodes import ray_nodes
from agentic_video.training.engines.actor import reference_pixels, sequence_images, sequence_inputs, with_pixels
from agentic_video.types.frame import ImageRef
from agentic_video.video.fetch import FrameFetcher
from agentic_video.video.store_config import StoreConfig
from benchmarks.tables import size, table
from benchmarks.throughput.rollouts import (
    SIDES,
    Counts,
    Heartbeat,
    Load,
    Side,
    Worker,
    counting,
    image_bytes,
    make_model,
    make_video,
)

NODES = 2
PLAYERS = 2
"""Agent-loop workers on each node."""
JOINED = "AGENTIC_VIDEO_BENCHMARK_JOINED"
"""Set in the process that joins the nodes."""
PASSES = 3
"""Number of times a rank takes its sequences: old log-probabilities, the reference model's, the update."""
LOAD = Load(questions=8, rollouts=16, overview=40, zooms=3, think=0.05)
"""128 trajectories of 88 frames."""


class Engine:
    """Stand-in for a vLLM server: fetches each distinct image once, and returns the given reply."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._fetcher = FrameFetcher()
        self._received = 0

    async def generate(self, reply: list[int], seconds: float, image_data: Any = None, **request: Any) -> TokenOutput:
        """A turn."""
        self._received += image_bytes(image_data)
        new = [image for image in image_data or () if isinstance(image, ImageRef) and image.key not in self._seen]
        self._seen.update(image.key for image in new)
        await self._fetcher.afetch(new)
        await asyncio.sleep(seconds)
        return TokenOutput(token_ids=reply, log_probs=[-1.0] * len(reply), extra_fields={"global_steps": 1})

    async def counts(self) -> dict[str, int]:
        """Bytes that came with requests, and bytes and images that were fetched."""
        stats = self._fetcher.stats
        return {"received": self._received, "fetched": stats.bytes, "images": stats.fetched}


class Player:
    """An agent-loop worker on a node."""

    def __init__(self, side: Side, model: Path, video: Path, load: Load, engines: Sequence[Any]):
        tq.init()
        self._workers = [Worker(side, model, video, load, engine) for engine in engines]

    async def play(self, questions: Sequence[int]) -> dict[str, Any]:
        """Play questions, each with the engine of its group."""
        counts = Counts()
        stop = counting(counts)
        async with Heartbeat() as heart:
            shares = [
                worker.play([question for question in questions if question % len(self._workers) == number])
                for number, worker in enumerate(self._workers)
            ]
            keys = [key for share in await asyncio.gather(*shares) for key in share]
        stop()
        return {"keys": keys, "put": counts.put, "processed": counts.processed, "stall": max(heart.stalls, default=0.0)}


class Rank:
    """A rank of the trainer: makes the model's inputs of its sequences, one at a time."""

    def __init__(self, side: Side, model: Path, video: Path, load: Load):
        tq.init()
        self._processor = Worker(side, model, video, load, server=object()).worker.processor
        self._fetcher = FrameFetcher(StoreConfig(), 1 << 30)

    def take(self, keys: Sequence[str]) -> dict[str, int]:
        """Take sequences as often as a step does."""
        counts = Counts()
        stop = counting(counts)
        patches = 0
        for _ in range(PASSES):
            for key in keys:
                batch = tq.kv_batch_get(keys=[key], partition_id="train")
                if images := [references for references in sequence_images(batch) if references]:
                    fetched = self._fetcher.fetch(ref for references in images for ref in references.images)
                    pixels = reference_pixels(self._processor, images, fetched)
                    batch = with_pixels(family_of(self._processor), batch, pixels)
                patches += sum(len(inputs["pixel_values"]) for inputs in sequence_inputs(batch))
        stop()
        return {"got": counts.got, "fetched": self._fetcher.stats.bytes, "patches": patches}


class Memory:
    """The most memory in use beyond what was when it began, in bytes."""

    def __init__(self) -> None:
        self._before = self._used()
        self.most = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _used(self) -> int:
        memory = psutil.virtual_memory()
        return int(memory.total - memory.available)

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            self.most = max(self.most, self._used() - self._before)

    def stop(self) -> int:
        """The most."""
        self._done.set()
        self._thread.join()
        return self.most


def on_node(cls: type[Any], node: str, *arguments: Any) -> Any:
    """An actor on a node."""
    place = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(cls).options(num_cpus=0, max_concurrency=1000, scheduling_strategy=place).remote(*arguments)


def measure(side: Side, load: Load, model: Path, video: Path) -> dict[str, Any]:
    """Play and take a step, after its actors have started."""
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    assert len(nodes) == NODES
    engines = [on_node(Engine, node) for node in nodes]
    players = [on_node(Player, node, side, model, video, load, engines) for node in nodes for _ in range(PLAYERS)]
    # not async, so one call at a time
    ranks = [on_node(Rank, node, side, model, video, load) for node in nodes]
    ray.get([player.play.remote([]) for player in players] + [rank.take.remote([]) for rank in ranks])
    memory = Memory()
    started = time.perf_counter()
    questions = [
        [question for question in range(load.questions) if question % len(players) == number]
        for number in range(len(players))
    ]
    played = ray.get([player.play.remote(share) for player, share in zip(players, questions, strict=True)])
    rollout_seconds = time.perf_counter() - started
    keys = sorted(key for play in played for key in play["keys"])
    # verl deals sequences out by length, which scatters groups
    taken = ray.get([rank.take.remote(keys[number :: len(ranks)]) for number, rank in enumerate(ranks)])
    seconds = time.perf_counter() - started
    most = memory.stop()
    served = ray.get([engine.counts.remote() for engine in engines])
    tq.kv_clear(keys=keys, partition_id="train")
    for actor in (*players, *ranks, *engines):
        ray.kill(actor)
    patches = sum(part["patches"] for part in taken)
    assert patches == PASSES * len(keys) * load.frames * 512, "each rank made all patches of 448 x 224 frames"
    return {
        "side": side,
        "trajectories": len(keys),
        "frames": load.frames,
        "put_bytes": sum(part["put"] for part in played),
        "got_bytes": sum(part["got"] for part in taken),
        "fetched_bytes": sum(part["fetched"] for part in taken),
        "server_bytes": sum(part["received"] for part in served),
        "server_fetched_bytes": sum(part["fetched"] for part in served),
        "server_fetched_images": sum(part["images"] for part in served),
        "processed": sum(part["processed"] for part in played),
        "stall_ms": max(part["stall"] for part in played),
        "rollout_seconds": rollout_seconds,
        "seconds": seconds,
        "peak_bytes": most,
    }


def figures(results: Sequence[dict[str, Any]]) -> str:
    """The figures side by side."""
    head = (
        f"trajectories, side, into TransferQueue, out of it {PASSES} times, frames to ranks, with requests to servers, "
    )
    head += "fetched by servers, moved in all, peak memory, longest stall, seconds"
    rows = []
    for result in results:
        moved = [result[f"{name}_bytes"] for name in ("put", "got", "fetched", "server", "server_fetched")]
        sizes = map(size, [*moved, sum(moved), result["peak_bytes"]])
        last = [f"{result['stall_ms']:.0f} ms", f"{result['seconds']:.0f}"]
        rows.append([str(result["trajectories"]), result["side"], *sizes, *last])
    return table(head.split(", "), rows)


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/throughput"), help="folder of video, model and results"
    )
    parser.add_argument("--questions", type=int, default=LOAD.questions, help="of 16 rollouts, with references")
    parser.add_argument("--stock", type=int, default=1, help="questions of 16 rollouts that both sides play")
    parser.add_argument("--rollouts", type=int, default=LOAD.rollouts)
    options = parser.parse_args()
    if JOINED not in os.environ:
        # Ray reads how to show its token when it is imported: on, in a process of its own.
        with tempfile.TemporaryDirectory(prefix="av-") as folder, ray_nodes(NODES, Path(folder), os.environ) as joining:
            again = [sys.executable, "-m", "benchmarks.throughput.step", *sys.argv[1:]]
            raise SystemExit(subprocess.run(again, env={**os.environ, **joining, JOINED: "1"}, check=False).returncode)
    options.out.mkdir(parents=True, exist_ok=True)
    video, model = make_video(options.out / "video.mp4"), make_model(options.out)
    loads: list[tuple[Side, int]] = [(side, options.stock) for side in SIDES]
    if options.questions != options.stock:
        loads.append(("references", options.questions))
    inherited = {name: os.environ[name] for name in ("PYTHONPATH", "VERL_PLATFORM") if name in os.environ}
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, runtime_env={"env_vars": inherited})
    tq.init()
    results = []
    for side, questions in loads:
        load = replace(LOAD, questions=questions, rollouts=options.rollouts)
        results.append(measure(side, load, model, video))
        print(json.dumps(results[-1]), flush=True)
    tq.close()
    ray.shutdown()
    (options.out / "step.json").write_text(json.dumps(results, indent=1))
    print(figures(results))


if __name__ == "__main__":
    main()
