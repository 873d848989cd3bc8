"""Seconds of a step, part by part, each with how it is known.

``measured``: times of the same work, by its amount. ``derived``: operations or bytes by formula, divided by a rate that
a measured cell reached. ``guessed``: by a data sheet, or a rate that nobody measured here. All episodes are typical.
Not counted: gathering weights from other GPUs, waiting for pixels, the slowest rank or episode, tools, graders."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from agentic_video.planning.job import RunSpec
from agentic_video.planning.memory import (
    gradient_bytes,
    kv_bytes,
    optimizer_bytes,
    state_bytes,
    weight_bytes,
)
from agentic_video.planning.rates import Kind, Rate, Rates, encoder_operations, read_weights, shipped
from agentic_video.planning.traffic import distinct_frames, overview_tokens, shared_tokens, synced_bytes
from agentic_video.planning.work import Work, attention, blocks, layers, optimizer, scoring, training

OVERVIEW, ZOOM, DECODERS = 64, 16, 2
"""Frames of the measured overview and zoom, and the decoders that shared them."""
ENGINE_SECONDS, MEASURED_PIXELS = 0.010, 448 * 224
"""vLLM's preprocessing of a frame of so many pixels (64 frames in 650 ms on two CPU cores)."""


@dataclass(frozen=True)
class Estimate:
    """Seconds, how they are known, and from what."""

    seconds: float
    kind: Kind
    source: str


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of a step: the parts of rollouts overlap, those of the trainer follow each other.

    Attributes:
        apart: Rollouts and trainer have GPUs of their own, and work at the same time.
    """

    rollouts: Mapping[str, Estimate]
    trainer: Mapping[str, Estimate]
    apart: bool

    @property
    def rolling(self) -> float:
        """Least seconds of rollouts: engines need both of theirs, everything else may overlap with them."""
        engines = [part.seconds for name, part in self.rollouts.items() if name.startswith("engines")]
        return max(sum(engines), *(part.seconds for part in self.rollouts.values()))

    @property
    def training(self) -> float:
        """Seconds of the trainer."""
        return sum(part.seconds for part in self.trainer.values())

    @property
    def total(self) -> float:
        """Least seconds of a step."""
        return max(self.rolling, self.training) if self.apart else self.rolling + self.training


def step_seconds(job: RunSpec, held: float, rates: Rates) -> StepSeconds:
    """Seconds of a step.

    Args:
        held: Typical sequences that an engine's KV cache holds.
    """
    return StepSeconds(rollouts(job, held, rates), trainer(job, rates), job.pool is not None)


def derived(amount: float, rate: Rate) -> Estimate:
    """Seconds of so many operations or bytes on one GPU."""
    return Estimate(amount / rate.value, "guessed" if rate.kind == "guessed" else "derived", rate.source)


def rollouts(job: RunSpec, held: float, rates: Rates) -> dict[str, Estimate]:
    """Parts of rollouts; engines' prompts and replies are those of all turns."""
    distinct, gpus = distinct_frames(job), job.engines * job.tensor_parallel
    parts = {"decoding": decoding(job)}
    if job.retriever and job.episode.searched_frames:
        operations = job.questions * job.episode.searched_frames * encoder_operations(job.retriever)
        parts["retrieval's encoder"] = derived(operations / job.nodes, rates.encoder)
    scale = math.prod(job.frame_size) / MEASURED_PIXELS
    preprocessing = distinct * ENGINE_SECONDS * scale / job.servers
    parts["vLLM's preprocessing"] = Estimate(preprocessing, "measured", "two CPU cores")
    prompts = prompt_operations(job) + blocks(job.shape, distinct * job.frame_patches)
    parts["engines: prompts"] = derived(prompts / gpus, rates.engine)
    parts["engines: replies, at least"] = derived(reply_bytes(job, held), rates.memory)
    return parts


def decoding(job: RunSpec) -> Estimate:
    """Distinct frames by codec and height of the videos: overviews and searched frames, and calls as zooms. Between the
    measured heights, and beyond them, by pixels."""
    episode, table = job.episode, shipped()["decoding"][job.episode.source_codec]
    (low, least), (high, most) = sorted(table.items())
    share = (episode.source_height**2 - low**2) / (high**2 - low**2)
    overview, zoom = (
        max(0.0, small + share * (large - small)) / 1000 / count
        for small, large, count in zip(least, most, (OVERVIEW, ZOOM), strict=True)
    )
    spread = job.questions * episode.overview_frames
    called = distinct_frames(job) - spread
    busy = (spread + job.questions * episode.searched_frames) * overview + called * zoom
    kind: Kind = "measured" if episode.source_height in table else "derived"
    source = f"{episode.source_codec}, {episode.source_height}p, two CPU cores"
    return Estimate(busy * DECODERS / (job.decoders * job.nodes), kind, source)


def prompt_operations(job: RunSpec) -> float:
    """Operations of the tokens that engines compute besides replies, in the decoder. With the prefix cache a group
    computes once what its rollouts share; without it every turn computes the overview again."""
    shared = shared_tokens(job) if job.prefix_cached else 0
    own, text = job.typical - shared, job.shape.text
    once = layers(job.shape, shared) + attention(text, shared)
    each = layers(job.shape, own) + attention(text, own, shared)
    if not job.prefix_cached:
        again = overview_tokens(job)
        each += (job.episode.turns - 1) * (layers(job.shape, again) + attention(text, again))
    return job.questions * once + job.episodes * each


def reply_bytes(job: RunSpec, held: float) -> float:
    """Bytes that a GPU of an engine reads at least for a step's replies: the language model once a forward pass, for
    all sequences that the engine holds at a time, and each token its sequence's cache, which grows from the overview to
    the whole episode."""
    text, said, tensor = job.shape.text, job.episode.said_tokens, job.tensor_parallel
    each = job.episodes / job.engines
    passes = max(1.0, each / max(1.0, min(job.sequences, held))) * said
    cached = (overview_tokens(job) + job.typical) / 2 * kv_bytes(text, tensor)
    cached += state_bytes(text, tensor) / 2  # the running one
    return passes * read_weights(job.shape) / tensor + each * said * cached


def trainer(job: RunSpec, rates: Rates) -> dict[str, Estimate]:
    """Parts of the trainer, on each of its GPUs."""
    shape, precision = job.shape, job.precision
    sequences = job.episodes / job.machines.gpus
    patches = job.episode.frames * job.frame_patches * job.ulysses  # GPUs of a sequence run the whole tower each
    source = rates.decoder.source

    def passed(work: Work) -> Estimate:
        return Estimate(rates.seconds(work), "derived", source)

    forward = scoring(shape, job.typical, patches) * sequences
    update = training(shape, job.typical, patches, precision, job.head, checkpointed=job.checkpointed)
    parts: dict[str, Estimate] = {}
    if job.scores:
        parts["old log-probabilities"] = passed(forward)
    if job.use_kl:
        parts["reference's log-probabilities"] = passed(forward)
    parts["updates"] = passed(update * (sequences * job.epochs))
    steps = job.epochs * math.ceil(job.questions / job.mini_batch)
    step = optimizer(shape, precision).bytes * steps / job.shards
    parts["optimizer's steps"] = derived(step, rates.host if job.streamed else rates.memory)
    if moved := offloaded_bytes(job):
        parts["to and from main memory"] = derived(moved, rates.host)
    parts["weights to engines"] = derived(synced_bytes(job), rates.weights)
    parts["processes, at least"] = Estimate(1 / rates.steps.value, rates.steps.kind, rates.steps.source)
    return parts


def offloaded_bytes(job: RunSpec) -> float:
    """Bytes between a GPU and main memory in a step.

    verl loads and offloads weights around each pass and the hand-over, the optimizer around all updates
    (``engine/base.py``, ``BaseEngineCtx``). What FSDP2 streams, and the reference model, come anew in each
    micro-batch, in a backward pass again."""
    shape, precision = job.shape, job.precision
    ranks = max(1, job.machines.gpus // job.ulysses)
    micro = job.micro_batch or max(1.0, job.micro_tokens * job.ulysses / job.typical)
    batches = math.ceil(job.episodes / ranks / micro)
    weights = weight_bytes(shape, precision) / job.shards
    forward = job.scores + (job.use_kl and not job.reference)  # adapters' reference is the model without them
    moved = 0.0
    if job.streamed:
        moved += batches * (weights * (forward + 2 * job.epochs) + gradient_bytes(shape, precision) / job.shards)
    elif job.param_offload:
        moved += 2 * weights * (forward + 2)
    if job.optimizer_offload and not job.streamed:
        moved += 2 * optimizer_bytes(shape, precision) / job.shards
    if job.reference:
        moved += batches * shape.parameters * precision.weight_bytes / job.reference_shards
    return moved
