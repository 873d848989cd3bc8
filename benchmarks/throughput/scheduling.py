"""Rollouts over engines, simulated: which engine plays a rollout, and how long trainer and engines wait for each other.

    python -m benchmarks.throughput.scheduling --out FOLDER

VideoZoomer's episodes and engines of the sizes in its ``cluster.yaml``, the routers' own code, and verl's order of
playing, training and handing weights over. What is modelled, and what isn't: benchmarks/throughput/README.md.
"""

import argparse
import json
import math
import random
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from verl.workers.rollout.router import GlobalRequestLoadBalancer

from agentic_video.config.compose import compose_recipe
from agentic_video.planning.job import LABEL_TOKENS, Machines, RunSpec, job_of
from agentic_video.planning.job import Episode as TypicalEpisode
from agentic_video.planning.memory import kv_bytes
from agentic_video.planning.plan import engine_of
from agentic_video.planning.rates import read_weights
from agentic_video.planning.seconds import ENGINE_SECONDS
from agentic_video.planning.traffic import engine_pictures
from agentic_video.training.loop.router import GroupRouter
from agentic_video.utils.units import GIB
from benchmarks.tables import table
from benchmarks.throughput.engines import Clock, Cluster, Episode, MovingRouter, Rates, Turn

REPOSITORY = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).with_name("episodes.json")
SEEDS = (0, 1, 2)
HBM, FLOPS = 3.35e12, 989e12
"""Bytes and bfloat16 operations per second of an H100 (data sheet)."""
TOOL_SECONDS, TOOL_SIGMA = 0.65, 0.5
"""Median of a zoom (1080p, docs/performance.md), and the spread of its logarithm (assumed)."""
MOST_TURNS, MOST_SAID = 5, 4096
"""VideoZoomer's ``max_turns`` and ``lengths.turn``."""
UPDATES = 4
"""Optimizer updates of a step (``train_batch_size`` over ``ppo_mini_batch_size``)."""
ROUTERS: dict[str, Callable[[dict[str, Any], Clock], Any]] = {
    "group": lambda engines, clock: GroupRouter(engines),
    "spread": lambda engines, clock: GlobalRequestLoadBalancer(engines),
    "moving": MovingRouter,
}


@dataclass(frozen=True)
class Setting:
    """A run.

    Attributes:
        gpus: All of them.
        router: ``group`` (this package's), ``spread`` (verl's) or ``moving``.
        mode: verl's trainer: ``sync``, ``colocate_async`` or ``separate_async``.
        ahead: Batches played ahead (``num_warmup_batches``).
        parts: Parts of a step that are trained on as soon as they are there (``parameter_sync_step``).
        threshold: Steps that an episode may last before its step waits for it (``max_off_policy_threshold`` with the
            strategy ``wait``); 0 for any number.
        players: Share of the GPUs that only play (``separate_async``).
        trained: Tokens a second of a trainer's GPU.
        sync: Seconds for handing weights over, waking up included.
        skip: Steps at the start that aren't counted.
    """

    gpus: int
    lengths: str
    router: str = "group"
    mode: str = "sync"
    ahead: float = 0.0
    parts: int = 1
    threshold: int = 0
    players: float = 0.25
    questions: int = 128
    rollouts: int = 16
    trained: float = 4000.0
    sync: float = 10.0
    steps: int = 6
    skip: int = 2

    @property
    def name(self) -> str:
        """Trainer and what it is set to."""
        keys = {"ahead": self.ahead, "parts": self.parts if self.parts > 1 else 0, "threshold": self.threshold}
        return " ".join([self.mode, *(f"{key} {value:g}" for key, value in keys.items() if value)])


Draw = Callable[[], list[list[Turn]]]


def record(folders: Sequence[Path]) -> None:
    """Keep what evaluations of the same rows with several seeds said and saw, row by row."""
    groups: dict[str, list[list[list[int]]]] = {}
    for line in (line for folder in folders for file in folder.glob("episodes-*.jsonl") for line in file.open()):
        trajectory = json.loads(line)["trajectory"]
        turns = [
            [turn["num_tokens"], sum(isinstance(part, dict) for part in turn["observation"])]
            for turn in trajectory["turns"]
        ]
        groups.setdefault(trajectory["qa_id"], []).append(turns)
    RECORDED.write_text("[\n" + ",\n".join(json.dumps(group) for group in groups.values()) + "\n]\n")


def recorded(typical: TypicalEpisode, rng: random.Random, rollouts: int) -> Draw:
    """Groups of an evaluation of the toy world, whose tokens and frames are scaled to a typical episode's."""
    groups: list[list[list[list[int]]]] = json.loads(RECORDED.read_text())
    episodes = [episode for group in groups for episode in group]
    said, frames = (sum(turn[kind] for one in episodes for turn in one) / len(episodes) for kind in (0, 1))
    more, shown = typical.said_tokens / said, (typical.frames - typical.overview_frames) / frames

    def draw() -> list[list[Turn]]:
        return [
            [Turn(round(turn[0] * more), round(turn[1] * shown), tool_seconds(rng)) for turn in episode]
            for episode in rng.choices(rng.choice(groups), k=rollouts)
        ]

    return draw


def heavy(typical: TypicalEpisode, rng: random.Random, rollouts: int) -> Draw:
    """Log-normal numbers of turns and tokens of a turn; half of their variance is the question's (all assumed)."""
    frames = round((typical.frames - typical.overview_frames) / (typical.turns - 1))

    def draw() -> list[list[Turn]]:
        question = rng.gauss(0, 1), rng.gauss(0, 1)

        def times(kind: int, sigma: float) -> float:
            return math.exp(sigma * math.sqrt(0.5) * (question[kind] + rng.gauss(0, 1)) - sigma**2 / 2)

        def episode() -> list[Turn]:
            turns = min(MOST_TURNS, max(1, round(typical.turns * times(0, 0.5))))
            said = [typical.said_tokens / typical.turns * times(1, 1.0) for _ in range(turns)]
            return [Turn(min(MOST_SAID, max(1, round(tokens))), frames, tool_seconds(rng)) for tokens in said]

        return [episode() for _ in range(rollouts)]

    return draw


def tool_seconds(rng: random.Random) -> float:
    """Seconds of a call."""
    return TOOL_SECONDS * math.exp(rng.gauss(0, TOOL_SIGMA))


LENGTHS = {"recorded": recorded, "heavy": heavy}


def rates_of(job: RunSpec, efficiency: float, picture: float) -> Rates:
    """An engine of a run at a share of the data sheet's rates."""
    shape, episode, tensor = job.shape, job.episode, job.tensor_parallel
    visual = episode.frames * job.frame_patches * shape.vision.depth * shape.block
    each, frame = kv_bytes(shape.text, tensor), job.frame_tokens + LABEL_TOKENS
    return Rates(
        weights=read_weights(shape) / (HBM * efficiency * tensor),
        cached=each / (HBM * efficiency),
        token=2 * (shape.decoder + visual / job.typical) / (FLOPS * efficiency * tensor),
        picture=picture,
        room=int(engine_of(job).kv / each),
        pictures=engine_pictures(job).holds,
        sequences=job.sequences,
        shared=episode.overview_frames * frame + episode.text_tokens - episode.said_tokens,
        shared_frames=episode.overview_frames,
        frame=frame,
    )


def simulate(setting: Setting, typical: TypicalEpisode, rates: Rates, seed: int, tensor: int = 1) -> dict[str, float]:
    """Figures of a run's steps."""
    random.seed(seed)  # verl's router draws among equals
    draw = LENGTHS[setting.lengths](typical, random.Random(seed), setting.rollouts)
    separate = setting.mode == "separate_async"
    players = round(setting.gpus * setting.players) if separate else setting.gpus
    trainers = setting.gpus - players if separate else setting.gpus
    clock, names = Clock(), dict.fromkeys(f"e{number}" for number in range(players // tensor))
    cluster = Cluster(clock, rates, ROUTERS[setting.router](names, clock), names)
    begun: list[int] = []  # the step that each group began with
    groups, updates = setting.questions // setting.parts, UPDATES // setting.parts
    episodes: list[Episode] = []
    ages: list[int] = []
    start = waited = trained = busy = awake = 0.0

    def begin(step: int, count: float) -> None:
        for group in range(len(begun), len(begun) + round(count)):
            begun.append(step)
            cluster.begin(group, draw())

    def enough() -> bool:
        oldest = step - setting.threshold + 1 if setting.threshold else -1
        return len(cluster.ready) >= groups and not any(begun[group] <= oldest for group in cluster.playing)

    cluster.wake()
    begin(0, setting.ahead * setting.questions)
    for step in range(setting.steps):
        if step == setting.skip:
            start, waited, trained, busy, awake = clock.now, 0.0, 0.0, cluster.busy, cluster.awake
            episodes, ages = [], []
        begin(step, setting.questions)
        for part in range(setting.parts):
            asked = clock.now
            clock.run(done=enough)
            waited += clock.now - asked
            if not separate:
                cluster.sleep()
            batch = cluster.take(groups)
            seconds = sum(rates.shared + episode.own for episode in batch) / (setting.trained * trainers)
            trained += seconds
            clock.run(seconds)
            first = step * UPDATES + part * updates
            ages += [first + at * updates // len(batch) - episode.version for at, episode in enumerate(batch)]
            episodes += batch
        if separate:
            cluster.sleep()
        clock.run(setting.sync)
        cluster.version = (step + 1) * UPDATES
        cluster.wake()
    elapsed, busy, awake = clock.now - start, cluster.busy - busy, cluster.awake - awake
    times = sorted(episode.ended - episode.began for episode in episodes)
    return {
        "trajectories/s": len(episodes) / elapsed,
        "tokens/s": sum(rates.shared + episode.own for episode in episodes) / elapsed,
        "engines idle": 1 - busy / awake,
        "trainer idle": waited / elapsed if separate else math.nan,
        "GPUs idle": 1 - (busy * tensor + trained * trainers) / (elapsed * setting.gpus),
        "staleness": statistics.fmean(ages),
        "oldest": max(ages),
        "p50": times[len(times) // 2],
        "p99": times[int(len(times) * 0.99)],
    }


def settings(gpus: Sequence[int]) -> list[Setting]:
    """What is compared."""
    made = []
    for count, lengths in product(gpus, LENGTHS):
        one = Setting(count, lengths) if count > 8 else Setting(count, lengths, questions=16, rollouts=8, players=0.5)
        ahead = replace(one, mode="colocate_async", ahead=1.0)
        made += [replace(one, router=router) for router in ROUTERS]
        made += [replace(ahead, ahead=0.25), ahead, replace(ahead, router="spread"), replace(ahead, threshold=2)]
        made += [replace(ahead, mode="separate_async", parts=UPDATES)]
    return made


def row(setting: Setting, runs: Sequence[dict[str, float]]) -> list[str]:
    """Means over seeds, and the throughput's spread."""
    mean = {key: statistics.fmean(run[key] for run in runs) for key in runs[0]}
    rate = [run["trajectories/s"] for run in runs]
    shares = [f"{mean[key]:.0%}".replace("nan%", "") for key in ("engines idle", "trainer idle", "GPUs idle")]
    return [
        *(str(setting.gpus), setting.lengths, setting.name, setting.router),
        f"{mean['trajectories/s']:.2f} ({min(rate):.2f} to {max(rate):.2f})",
        f"{mean['tokens/s'] / 1e3:.0f}",
        *shares,
        f"{mean['staleness']:.1f}, {max(run['oldest'] for run in runs):.0f}",
        f"{mean['p50']:.0f}, {mean['p99']:.0f}",
    ]


HEAD = "GPUs, lengths, trainer, router, trajectories/s, 1000 tokens/s, engines idle, trainer idle, GPUs idle"
HEADS = [*HEAD.split(", "), "staleness", "seconds of an episode"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("outputs/throughput"), help="folder for scheduling.json")
    parser.add_argument("--record", type=Path, nargs="+", help="evaluations of the toy world to keep instead")
    parser.add_argument("--gpus", type=int, nargs="+", default=[2, 16, 128], help="GPUs (default: 2 16 128)")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="GPUs of an engine (default: 1)")
    parser.add_argument("--steps", type=int, default=6, help="of a run; the first two aren't counted")
    parser.add_argument("--tokens", type=float, default=4000.0, help="a second, of a trainer's GPU (docs/gpu.md)")
    parser.add_argument("--sync", type=float, default=10.0, help="seconds for handing weights over")
    parser.add_argument("--efficiency", type=float, default=0.5, help="share of an H100's full rates")
    parser.add_argument("--picture", type=float, default=ENGINE_SECONDS, help="a server's seconds for a new frame")
    options = parser.parse_args()
    if options.record:
        record(options.record)
        return
    tensor = options.tensor_parallel
    overrides = [
        *("data.train_files=none", "data.val_files=none", "actor_rollout_ref.model.path=none"),
        f"actor_rollout_ref.rollout.tensor_model_parallel_size={tensor}",
    ]
    config = compose_recipe(REPOSITORY / "recipes" / "videozoomer", "cluster", overrides)
    job = job_of(config, Machines(max(options.gpus), 80 * GIB, 1024 * GIB))
    rates = rates_of(job, options.efficiency, options.picture)
    changed = {"trained": options.tokens, "sync": options.sync, "steps": options.steps}
    compared = [replace(one, **changed) for one in settings(options.gpus)]
    with ProcessPoolExecutor(2) as pool:
        futures = [[pool.submit(simulate, one, job.episode, rates, seed, tensor) for seed in SEEDS] for one in compared]
        results = [[future.result() for future in runs] for runs in futures]
    options.out.mkdir(parents=True, exist_ok=True)
    kept = [{"setting": vars(one), "runs": runs} for one, runs in zip(compared, results, strict=True)]
    (options.out / "scheduling.json").write_text(json.dumps({"rates": rates._asdict(), "results": kept}, indent=2))
    print(table(HEADS, [row(one, runs) for one, runs in zip(compared, results, strict=True)], 7))


if __name__ == "__main__":
    main()
