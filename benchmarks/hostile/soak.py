"""Many episodes through one agent-loop worker and one frame store of a node, and what each round leaves behind.

Worker, store and its processes, token ids and TransferQueue are real; the model is a stand-in, half of whose replies
are hostile. The store is too small for the videos, so that frames and readers come and go, and some videos are damaged.
Neither memory nor threads nor descriptors may grow with the episodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import ray
import transfer_queue as tq
from verl.workers.rollout.replica import TokenOutput

from benchmarks.hostile import outputs, videos
from benchmarks.throughput.rollouts import Load, Worker, make_model, make_video
from tests.hostile_cases import CASES

LOAD = Load(questions=16, rollouts=4, overview=8, zooms=2)
ROUND = LOAD.questions * LOAD.rollouts
GOOD, DAMAGED = 12, 4
"""Videos."""
STORE = ("agentic_video.frame_store.max_bytes=33554432", "agentic_video.frame_store.max_readers=4")
LONG = 400
"""Longest reply in tokens: replies of a whole turn would dominate a round."""


class Talker:
    """Stand-in for verl's client of its servers: says what a model may say, the same for each seed and turn."""

    def __init__(self, tokenizer: Any, seconds: float, seed: int):
        self._tokenizer, self._seconds = tokenizer, seconds
        self._rng = random.Random(seed)

    async def generate(self, request_id: str, **request: Any) -> TokenOutput:
        """A turn of an episode."""
        await asyncio.sleep(0.01)
        if self._rng.random() < 0.5:
            start = self._rng.uniform(0.0, self._seconds - 9.0)
            call = {"segment": [round(start, 2), round(start + self._rng.uniform(1.0, 8.0), 2)], "fps": 2}
            text = f"<think>look</think><video_zoom>{json.dumps(call)}</video_zoom>"
        else:
            text = outputs.turn(self._rng, CASES["videozoomer"])[: 20 * LONG].encode("utf-8", "replace").decode()
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"][:LONG] or [self._tokenizer.eos_token_id]
        return TokenOutput(token_ids=list(ids), log_probs=[-1.0] * len(ids), extra_fields={"global_steps": 1})


def held(pid: int) -> dict[str, int]:
    """A process's own bytes, threads and descriptors."""
    process = psutil.Process(pid)
    memory = process.memory_info()
    return {"bytes": memory.rss - memory.shared, "threads": process.num_threads(), "descriptors": process.num_fds()}


def make_videos(folder: Path) -> list[Path]:
    """Good ones, each of a minute, and damaged ones."""
    first = make_video(folder / "0.mp4", 1.0)
    for number in range(1, GOOD):
        (folder / f"{number}.mp4").write_bytes(first.read_bytes())
    found: list[Path] = []
    number = 0
    while len(found) < DAMAGED:
        kind, name, data = videos.make(0, number)
        if kind == "damaged":
            found.append(folder / f"damaged-{name}")
            found[-1].write_bytes(data)
        number += 1
    return [folder / f"{number}.mp4" for number in range(GOOD)] + found


async def _round(worker: Worker, paths: Sequence[Path], rng: random.Random, number: int) -> Counter[str]:
    plays = []
    for question in range(LOAD.questions):
        worker.video = rng.choice(paths)
        plays += [worker.episode(question, session, f"r{number}-{question}") for session in range(LOAD.rollouts)]
    ends: Counter[str] = Counter()
    for end in await asyncio.gather(*plays, return_exceptions=True):
        # Ray and verl wrap what a damaged video raises; anything else is a defect.
        ends["played" if not isinstance(end, BaseException) else type(end).__name__] += 1
    here = await asyncio.to_thread(tq.kv_list, partition_id="train")
    await asyncio.to_thread(tq.kv_clear, keys=list(here.get("train", {})), partition_id="train")
    return ends


def parts(seed: int, count: int, done: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Play rounds of episodes until there are so many, in one process."""
    episodes = sum(part["episodes"] for part in done)
    first = len(done)
    with tempfile.TemporaryDirectory() as folder:
        paths, model = make_videos(Path(folder)), make_model(Path(folder))
        ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=1 << 30)
        tq.init()
        try:
            worker = Worker("references", model, paths[0], LOAD, overrides=STORE)
            worker.worker.llm_client = Talker(worker.worker.tokenizer, 60.0, seed + first)
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
            rng = random.Random(f"{seed}/{first}")
            store_pid = 0
            for number in range(first, first + (count - episodes + ROUND - 1) // ROUND):
                ends = loop.run_until_complete(_round(worker, paths, rng, number))
                store_pid = store_pid or _pid_of_store()
                gc.collect()
                yield {
                    "start": first,
                    "episodes": sum(ends.values()),
                    "ends": dict(ends),
                    "worker": held(psutil.Process().pid),
                    "store": held(store_pid),
                }
        finally:
            tq.close()
            ray.shutdown()


def _pid_of_store() -> int:
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended since
            found += [child.pid] * any("ray::StoreActor" in word for word in child.cmdline())
    (store,) = found
    return int(store)


def summary(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """All rounds: held resources after the first tenth of the rounds, in the middle, and at the end."""
    ends: Counter[str] = Counter()
    for part in parts:
        ends.update(part["ends"])
    runs = [[part for part in parts if part["start"] == start] for start in dict.fromkeys(p["start"] for p in parts)]

    def through(run: list[dict[str, Any]], who: str, what: str) -> list[int]:
        values = (run[place][who][what] for place in (len(run) // 10, len(run) // 2, -1))
        return [value >> 20 if what == "bytes" else value for value in values]

    held = {
        who: {
            name: [through(run, who, what) for run in runs]
            for name, what in {"mib": "bytes", "threads": "threads", "descriptors": "descriptors"}.items()
        }
        for who in ("worker", "store")
    }
    return {"episodes": sum(part["episodes"] for part in parts), "ends": dict(ends), "held": held}
