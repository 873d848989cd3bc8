"""Bytes that a step moves, and what waits in main memory: per hop, from a job.

Images travel as references (``training/inputs/references.py``); engines and the trainer's ranks fetch pixels as bytes.
For comparison: stock verl's float32 patches through TransferQueue.

Sources: this package's own way of pixels, vLLM's and verl's code."""

import math
from dataclasses import dataclass

from agentic_video.planning.job import LABEL_TOKENS, Machines, RunSpec
from agentic_video.planning.memory import (
    BF16,
    FP32,
    gradient_bytes,
    optimizer_bytes,
    weight_bytes,
)
from agentic_video.utils.units import GIB
from agentic_video.video.fetch import kept_bytes

PATCH_VALUE = FP32
"""Bytes of a patch's number in TransferQueue with stock verl: the image processor's float32."""
TOKEN = 72
"""Most bytes of a token in TransferQueue: prompt or response, input id, response mask, loss mask (int64), four
positions (int64), the engine's log-probability and the score (float32); ``agent_loop_tq.py:165``,
``agent_loop.py:117``. The trainer's results add 4 bytes per response token each."""
REFERENCE = 100
"""Bytes of an image in TransferQueue: 88 references to frames of one video pickle to 90 bytes each (measured)."""
PROCESS = 3 * GIB
"""A process that has imported torch, vLLM and verl: one per actor, engine and worker (assumed)."""
WORKER_PROCESS = 1 * GIB
"""An agent-loop or reward worker (assumed)."""


@dataclass(frozen=True)
class Hop:
    """Bytes that a step moves from one place to another, over all nodes."""

    name: str
    bytes: float


def frame_bytes(job: RunSpec) -> int:
    """A frame's pixels: uint8 RGB."""
    return 3 * math.prod(job.frame_size)


def patch_bytes(job: RunSpec) -> int:
    """A frame's patches from the image processor."""
    return job.frame_patches * job.shape.vision.patch_values * PATCH_VALUE


def distinct_frames(job: RunSpec) -> int:
    """Most different frames of a step: a question's rollouts share its overview, and each calls for others."""
    episode = job.episode
    return job.questions * (episode.overview_frames + job.rollouts * (episode.frames - episode.overview_frames))


def queued_bytes(job: RunSpec) -> int:
    """TransferQueue's bytes of a step's typical episodes."""
    return job.episodes * (job.typical * TOKEN + job.episode.frames * REFERENCE)


def rank_bytes(job: RunSpec) -> int:
    """Most bytes of pixels that a rank fetches in a step.

    verl distributes sequences by length, so that a group's are anywhere: a rank has no more overviews than sequences or
    questions. Its models share what it keeps; of more, the oldest is dropped first, and missing when
    it is needed again."""
    episode = job.episode
    sequences = math.ceil(job.episodes / max(1, job.machines.gpus // job.ulysses))
    called = sequences * (episode.frames - episode.overview_frames)
    distinct = (min(job.questions, sequences) * episode.overview_frames + called) * frame_bytes(job)
    if distinct <= _kept(job):
        return distinct
    return job.passes * sequences * episode.frames * frame_bytes(job)


def _kept(job: RunSpec) -> int:
    """Bytes of images that a rank keeps."""
    machines = job.machines
    return kept_bytes(machines.host_bytes, min(machines.gpus, machines.per_node))


def hops(job: RunSpec) -> tuple[Hop, ...]:
    """Bytes that a step moves.

    A rollout's frames come through the shared memory of its node. A question's rollouts go to one engine, which fetches
    each frame when it is first shown; later turns name it. TransferQueue takes each episode once, and the trainer
    fetches it for old log-probabilities, the reference model and the update; its ranks fetch the pixels."""
    queued = queued_bytes(job)
    return (
        Hop("frame stores to workers, in shared memory", job.episodes * job.episode.frames * frame_bytes(job)),
        Hop("frame stores to engines", distinct_frames(job) * frame_bytes(job)),
        Hop("into TransferQueue", queued),
        Hop(f"out of TransferQueue, {job.passes} times", job.passes * queued),
        Hop("frame stores to the trainer, at most", job.machines.gpus * rank_bytes(job)),
        Hop("weights to vLLM", job.players.gpus * synced_bytes(job)),
    )


def stock_hops(job: RunSpec) -> tuple[Hop, ...]:
    """Bytes of pixels that stock verl would move: each turn hands vLLM all pictures so far again, pickled, and
    TransferQueue takes float32 patches."""
    episode, count = job.episode, job.episodes
    called = episode.frames - episode.overview_frames
    later = sum(episode.overview_frames + called * turn / max(1, episode.turns - 1) for turn in range(episode.turns))
    patches = count * episode.frames * patch_bytes(job)
    return (
        Hop("workers to vLLM, each turn again", count * later * frame_bytes(job)),
        Hop("into TransferQueue", patches),
        Hop(f"out of TransferQueue, {job.passes} times", job.passes * patches),
    )


def synced_bytes(job: RunSpec) -> int:
    """Bytes that a trainer's process hands to its engine: weights as they are held, merged ones in bfloat16, or
    adapters (``bucketed_weight_transfer.py:112``, engine:1066). Engines on other GPUs get all weights each time
    (``engine_workers.py``, ``update_weights``)."""
    if job.adapters_served and not job.pool:
        return job.shape.adapters(job.precision.lora_rank) * job.precision.weight_bytes
    return job.shape.parameters * (BF16 if job.precision.lora_rank else job.precision.weight_bytes)


def host_parts(job: RunSpec) -> dict[str, float]:
    """Main memory on each node of the trainer."""
    machines, shape, precision = job.machines, job.shape, job.precision
    here = min(machines.gpus, machines.per_node)
    share = here / job.shards  # of the trained model, whose groups of GPUs have it all each
    parts = _playing_parts(job, machines)
    parts["images that the trainer keeps"] = here * _kept(job)
    if job.streamed or job.param_offload:
        parts["weights"] = weight_bytes(shape, precision) * share
    if job.streamed:  # each gradient is copied there as soon as it is reduced (torch's foreach_reduce)
        parts["gradients"] = gradient_bytes(shape, precision) * share
    if job.streamed or job.optimizer_offload:
        parts["optimizer"] = optimizer_bytes(shape, precision) * share
    if job.reference:  # FSDP2 keeps it in main memory, in the type of fsdp_config (engine:478)
        parts["reference model"] = shape.parameters * precision.weight_bytes * here / job.reference_shards
    if job.copies:
        parts["weights of earlier updates"] = job.copies * weight_bytes(shape, precision) * share
    return parts


def pool_host_parts(job: RunSpec) -> dict[str, float]:
    """Main memory on each node whose GPUs only play episodes."""
    return _playing_parts(job, job.players)


def _playing_parts(job: RunSpec, machines: Machines) -> dict[str, float]:
    """Episodes, engines and processes of a node.

    Ray's object store is among them: frames that stores handed to running episodes (each rollout has its own copies,
    and all of a step's may run at a time, with those played ahead), and the images that ranks keep."""
    here = min(machines.gpus, machines.per_node)
    engines = math.ceil(here / job.tensor_parallel)
    shown = job.episodes * job.episode.frames * frame_bytes(job) / job.nodes
    queued = queued_bytes(job) / job.nodes
    parts: dict[str, float] = {
        "frames of running episodes": shown * (1 + job.ahead),
        "TransferQueue, and what is fetched of it": queued * (2 + job.ahead),
    }
    if job.surplus:
        parts["groups beyond the batch, at most"] = shown + queued
    if job.adapters_served and job.sleeps:  # sleep level 1 backs the weights up (vllm_async_server.py:1303)
        parts["sleeping engines' weights"] = engines * job.shape.parameters * BF16
    parts["frame store"] = job.store_bytes
    parts["decoders, at most"] = job.decode_bytes
    parts["engines' processed pictures"] = math.ceil(engines / job.data_parallel) * job.picture_cache
    parts["processes"] = (here + engines) * PROCESS + 2 * math.ceil(job.workers / job.nodes) * WORKER_PROCESS
    return parts


def readers(job: RunSpec) -> int:
    """Processes of a node that read the whole model: one, or all if the embedding is tied (engine:245)."""
    return min(job.machines.gpus, job.machines.per_node) if job.shape.text.tied else 1


def loading_parts(job: RunSpec) -> dict[str, float]:
    """Main memory of the first node while the model is read (:func:`readers`); it moves to the GPUs before rollouts
    begin."""
    here = min(job.machines.gpus, job.machines.per_node)
    parts: dict[str, float] = {
        "model as it is read": readers(job) * job.shape.parameters * job.precision.weight_bytes,
        "processes": here * PROCESS,
    }
    if job.reference:
        parts["reference model"] = readers(job) * job.shape.parameters * job.precision.weight_bytes
    return parts


@dataclass(frozen=True)
class Pictures:
    """Processed frames of an engine: those in its cache, those of its questions in a step, bytes of the latter."""

    holds: int
    wants: int
    bytes: int


def engine_pictures(job: RunSpec) -> Pictures:
    """Processed frames of an engine, for the rollouts of a question turn by turn; vLLM keeps them in bfloat16."""
    each = patch_bytes(job) * BF16 // PATCH_VALUE
    wants = math.ceil(distinct_frames(job) / job.servers)
    return Pictures(job.picture_cache // each, wants, wants * each)


def shared_tokens(job: RunSpec) -> int:
    """Tokens that the rollouts of a question share: the overview, and others that weren't generated (prompt, question;
    tool replies count as shared, too)."""
    return min(job.typical, overview_tokens(job) + job.episode.text_tokens - job.episode.said_tokens)


def overview_tokens(job: RunSpec) -> int:
    """Tokens of the first view's frames."""
    return min(job.typical, job.episode.overview_frames * (job.frame_tokens + LABEL_TOKENS))
