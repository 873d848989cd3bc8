"""Bytes that a step moves, what waits in main memory, and the seconds of what isn't the model: per hop, from a job.

Sources: the audit of this package's own path of pixels (float32 patches through TransferQueue), vLLM's and verl's code,
and times measured on two CPU cores, each given with its constant. They are for orders of magnitude: decoding depends on
the videos, the rest on the machine.
"""

import math
from dataclasses import dataclass

from agentic_video.planning.job import Job
from agentic_video.planning.memory import BF16, FP32, GIB, kv_bytes, optimizer_bytes, weight_bytes
from agentic_video.utils.resources import patch_cache_share

PATCH_VALUE = FP32
"""Bytes of a number of a patch as it goes through TransferQueue: the image processor's float32."""
PROCESS = 3 * GIB
"""Of a process that has imported torch, vLLM and verl: one for each actor, engine and worker (assumed)."""
WORKER_PROCESS = 1 * GIB
"""Of an agent-loop or reward worker (assumed)."""

DECODE_SECONDS = 0.026
"""Of a frame that is sought in a 20-minute H.264 file (PyAV, 64 evenly spaced frames in 1.68 s)."""
PROCESS_SECONDS = 0.0135
"""Of the image processor for a frame of 448 x 224 (64 frames in 861 ms)."""
ENGINE_SECONDS = 0.010
"""Of vLLM's own preprocessing of such a frame, on its server's event loop (64 frames in 650 ms)."""
MEASURED_PIXELS = 448 * 224
HBM, FLOPS, EFFICIENCY = 3.35e12, 989e12, 0.4
"""Bytes and bfloat16 operations a second of an H100 (data sheet), and the share that is taken to be reached."""


@dataclass(frozen=True)
class Hop:
    """Bytes that a step moves from one place to another, over all nodes."""

    name: str
    bytes: float


def frame_bytes(job: Job) -> int:
    """A frame's pixels: uint8 RGB."""
    return 3 * job.episode.width * job.episode.height


def patch_bytes(job: Job) -> int:
    """A frame's patches as they go through TransferQueue."""
    return job.frame_patches * job.shape.vision.patch_values * PATCH_VALUE


def hops(job: Job) -> tuple[Hop, ...]:
    """What a step moves.

    A turn hands vLLM all pictures so far again, pixels pickled; TransferQueue takes each episode's patches once, and
    the trainer fetches them for old log-probabilities, the reference model and the update.
    """
    episode, count = job.episode, job.episodes
    called = episode.frames - episode.overview_frames
    later = sum(episode.overview_frames + called * turn / max(1, episode.turns - 1) for turn in range(episode.turns))
    patches = count * episode.frames * patch_bytes(job)
    return (
        Hop("frame store to workers", count * episode.frames * frame_bytes(job)),
        Hop("workers to vLLM, each turn again", count * later * frame_bytes(job)),
        Hop("into TransferQueue", patches),
        Hop(f"out of TransferQueue, {job.passes} times", job.passes * patches),
        Hop("weights to vLLM", job.machines.gpus * _synced(job)),
    )


def _synced(job: Job) -> int:
    """Bytes that a trainer's process hands to its engine: weights as they are held, merged ones in bfloat16, or
    adapters (``bucketed_weight_transfer.py:112``, engine:1066)."""
    if job.adapters_served:
        return job.shape.adapters(job.precision.lora_rank) * job.precision.weight_bytes
    return job.shape.parameters * (BF16 if job.precision.lora_rank else job.precision.weight_bytes)


def host_parts(job: Job) -> dict[str, float]:
    """Bytes of main memory on each node."""
    machines, shape, precision = job.machines, job.shape, job.precision
    nodes, here = machines.nodes, min(machines.gpus, machines.per_node)
    share = here / machines.gpus
    stored = job.episodes * job.episode.frames * patch_bytes(job) / nodes
    workers = math.ceil(job.workers / nodes)
    engines = math.ceil(here / job.tensor_parallel)
    parts: dict[str, float] = {
        "pixels in TransferQueue": stored,
        "pixels fetched by the trainer": stored,
    }
    if job.surplus:
        parts["pixels of groups beyond the batch, at most"] = stored
    if job.streamed or job.param_offload:
        parts["weights"] = weight_bytes(shape, precision) * share
    if job.streamed or job.optimizer_offload:
        parts["optimizer"] = optimizer_bytes(shape, precision) * share
    if job.reference:  # FSDP2 keeps it in main memory, in the type of fsdp_config (engine:478)
        parts["reference model"] = shape.parameters * precision.weight_bytes * share
    if job.adapters_served and job.sleeps:  # sleep level 1 backs the weights up (vllm_async_server.py:1303)
        parts["sleeping engines' weights"] = engines * shape.parameters * BF16
    parts["frame store"] = job.store_bytes
    parts["workers' processed frames"] = workers * worker_cache(job)
    parts["engines' processed pictures"] = engines * job.engine_cache_bytes
    parts["processes"] = (here + engines) * PROCESS + 2 * workers * WORKER_PROCESS
    return parts


def loading_parts(job: Job) -> dict[str, float]:
    """Bytes of main memory of the first node while the model is read: whole, by one rank, or by each where the
    embedding is tied (engine:245). It is spread over the GPUs before rollouts begin."""
    machines = job.machines
    here = min(machines.gpus, machines.per_node)
    readers = here if job.shape.text.tied else 1
    parts: dict[str, float] = {
        "model as it is read": readers * job.shape.parameters * job.precision.weight_bytes,
        "processes": here * PROCESS,
    }
    if job.reference:
        parts["reference model"] = readers * job.shape.parameters * job.precision.weight_bytes
    return parts


@dataclass(frozen=True)
class Cache:
    """Processed frames of an agent-loop worker.

    Attributes:
        holds: Frames that fit.
        wants: Frames of the questions that a worker plays in a step, each question's overview and one rollout's calls.
        workers: How many workers would hold theirs; 0 where no number would.
    """

    holds: int
    wants: int
    workers: int


def worker_cache(job: Job) -> int:
    """Bytes of processed frames in each agent-loop worker (``training/model_inputs.py``)."""
    return patch_cache_share(int(job.machines.host_bytes), math.ceil(job.workers / job.machines.nodes))


def patch_cache(job: Job) -> Cache:
    """Whether the rollouts of a question still find its frames processed."""
    holds = worker_cache(job) // patch_bytes(job)
    wants = math.ceil(job.questions / job.workers) * job.episode.frames
    each = holds // max(1, job.episode.frames)
    return Cache(holds, wants, math.ceil(job.questions / each) if each else 0)


def seconds(job: Job) -> dict[str, float]:
    """Seconds of a step's parts, each as if it ran by itself; they overlap.

    ``decoding``, ``processing`` and ``vLLM's preprocessing`` are those of one node's threads, one worker and one
    server; ``generating`` is a bound from below of an engine's: every token reads the weights and its sequence's cache
    once, and every token is computed once.
    """
    episode = job.episode
    called = episode.frames - episode.overview_frames
    distinct = job.questions * (episode.overview_frames + job.rollouts * called)
    scale = episode.width * episode.height / MEASURED_PIXELS
    shown = job.episodes * episode.frames
    cached = patch_cache(job)
    processed = distinct if cached.wants <= cached.holds else shown
    waves = math.ceil(job.episodes / job.engines / max(1, job.sequences))
    running = min(job.sequences, math.ceil(job.episodes / job.engines))
    read = job.shape.parameters * BF16 / job.tensor_parallel + running * job.typical * kv_bytes(job.shape.text)
    generating = waves * episode.said_tokens * read / HBM / EFFICIENCY
    prefill = job.episodes * job.typical * 2 * job.shape.parameters / (job.machines.gpus * FLOPS * EFFICIENCY)
    return {
        "decoding": distinct * DECODE_SECONDS / (job.decoders * job.machines.nodes),
        "processing": processed * PROCESS_SECONDS * scale / job.workers,
        "vLLM's preprocessing": shown * ENGINE_SECONDS * scale / job.engines,
        "generating, at least": generating + prefill,
    }
