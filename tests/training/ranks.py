"""An update on two ranks whose micro-batches show different kinds of things: ``python -m``.

Arguments: a folder, the model (a tiny one of benchmarks/gpu/shapes.py). Prints one line of JSON: for each rank the
log-probabilities of its sequence alone and with the other rank, and a digest of the weights after an update of both.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agentic_video.rollout.tokens import ChatFormat
from agentic_video.types.frame import Clip, Frame
from agentic_video.types.message import Message, Part, visuals_of
from benchmarks.gpu import actor as actors
from benchmarks.gpu.sequences import Episode
from benchmarks.gpu.shapes import write_checkpoint
from tests.training.programs import read_result, report, weights_digest
from tests.training.updates import SIZES

SHOWN = ("clip and image", "text")
"""Of each rank."""


def parts_of(kind: str, size: tuple[int, int]) -> tuple[Part, ...]:
    noise = np.random.default_rng(0)
    width, height = size
    frames = [Frame(number, 0.5 * number, noise.integers(0, 256, (height, width, 3), np.uint8)) for number in range(4)]
    return ("look", Clip(tuple(frames[:3])), "and", frames[3]) if kind == "clip and image" else ("nothing is shown",)


def rank(model: Path, kind: str) -> dict[str, Any]:
    if int(os.environ["WORLD_SIZE"]) > 1:
        actors.join_alone = lambda: None
    actor = actors.Actor(actors.ActorSetting(model, "cpu", 4096, dtype="float32", learning_rate=1e-2))
    parts = parts_of(kind, SIZES[model.name])
    prompt = ChatFormat.of(actor.processor).opening_ids([Message("user", parts)])
    said = list(range(40, 52))
    batch = actor.batch([Episode(prompt, said, [1] * len(said))], [list(visuals_of(parts))])
    before = actor.log_probs(batch)
    actor.update(actor.with_targets(batch, [item - 0.1 for item in before], [1.0]))
    return {"log_probs": before[0].tolist(), "weights": weights_digest(actor)}


def start(model: Path, kind: str, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.training.ranks", "rank", str(model), kind]
    return subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    found: dict[str, Any] = read_result(process.communicate(timeout=300)[0])
    return found


def main() -> None:
    if sys.argv[1] == "rank":
        return report(rank(Path(sys.argv[2]), sys.argv[3]))
    model = write_checkpoint(Path(sys.argv[1]) / sys.argv[2], sys.argv[2], dtype="float32", spread=1.0)
    alone = [result(start(model, kind, {"WORLD_SIZE": "1"})) for kind in SHOWN]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    running = [
        start(model, kind, {**group, "RANK": str(number), "LOCAL_RANK": str(number)})
        for number, kind in enumerate(SHOWN)
    ]
    try:
        together = [result(process) for process in running]
    finally:
        for process in running:
            process.kill()
    report({"alone": alone, "together": together})


if __name__ == "__main__":
    main()
