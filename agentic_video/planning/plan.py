"""A plan: the memory of each phase, whether it fits, and what to change."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from agentic_video.planning import memory, traffic
from agentic_video.planning.job import (
    ACTOR,
    FSDP,
    FSDP_SIZE,
    MODEL,
    PICTURE_CACHE,
    PICTURE_CACHE_GIB,
    ROLLOUT,
    RunSpec,
    Sizes,
    shards_of,
)
from agentic_video.planning.memory import BF16, FP32
from agentic_video.planning.rates import Rates, shipped_rates
from agentic_video.planning.seconds import StepSeconds, step_seconds
from agentic_video.planning.traffic import Hop
from agentic_video.utils.units import GIB

Verdict = Literal["fits", "tight", "does not fit"]
VERDICTS: tuple[Verdict, ...] = ("fits", "tight", "does not fit")
TIGHT = 0.92
"""Share of a memory from which on a phase is tight: allocators fragment, and micro-batches can exceed their budget, as
verl balances them by work (engine:762)."""
CONTEXTS = 1 * GIB
"""CUDA and NCCL of the trainer's process, or of an engine's weight receiver (assumed)."""
BUFFERS = 2
"""Buckets of weights on each side, for weights of other GPUs (``nccl_checkpoint_engine.py``, ``prepare``)."""
MOST_LENT = 0.85
"""Most of a GPU lent to an engine next to a trainer; libraries' workspaces aren't counted."""
ASLEEP = 3 * GIB
"""A sleeping engine: its CUDA context, graphs and other memory it keeps (assumed)."""
MICRO_BATCHES = (
    f"{ACTOR}.ppo_micro_batch_size_per_gpu",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
)
"""Sequences of a micro-batch that is not filled by tokens: of the update and of log-probabilities."""


@dataclass(frozen=True)
class Phase:
    """Peak of a phase: bytes by part, and the capacity in bytes."""

    name: str
    parts: dict[str, float]
    capacity: float

    @property
    def total(self) -> float:
        """Bytes in all."""
        return sum(self.parts.values())

    @property
    def largest(self) -> str:
        """Name of the largest part."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def verdict(self) -> Verdict:
        """Whether the phase fits."""
        share = self.total / self.capacity
        return "does not fit" if share > 1 else "tight" if share > TIGHT else "fits"


@dataclass(frozen=True)
class EngineCache:
    """KV cache of an engine: bytes on each GPU, and sequences."""

    kv: float
    longest: float
    """Sequences of ``max_model_len`` that fit."""
    typical: float
    wanted: int
    """Sequences that an engine is given at a time."""


@dataclass(frozen=True)
class Finding:
    """A problem, or a note (``fits``: it only costs time), with Hydra overrides that together mend it, if any do."""

    verdict: Verdict
    text: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A run's plan: phases of a GPU and of a node's main memory, moved bytes and seconds of a step, findings.

    Attributes:
        findings: The worst first.
    """

    job: RunSpec
    gpu: tuple[Phase, ...]
    host: tuple[Phase, ...]
    engine: EngineCache
    hops: tuple[Hop, ...]
    stock_hops: tuple[Hop, ...]
    seconds: StepSeconds
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of its phases and findings."""
        found = [*(phase.verdict for phase in (*self.gpu, *self.host)), *(finding.verdict for finding in self.findings)]
        return max(found, key=VERDICTS.index)


def make_plan(job: RunSpec, rates: Rates | None = None) -> Plan:
    """Compute a run's plan, with changes that mend what doesn't fit; seconds by the shipped rates unless others are
    given."""
    rates = rates or shipped_rates()
    findings = [*_wrong(job), *_beyond(job), *_slow(job, rates)]
    return Plan(
        job=job,
        gpu=gpu_phases(job),
        host=host_phases(job),
        engine=engine_of(job),
        hops=traffic.hops(job),
        stock_hops=traffic.stock_hops(job),
        seconds=step_seconds(job, engine_of(job).typical, rates),
        findings=tuple(sorted(findings, key=lambda finding: -VERDICTS.index(finding.verdict))),
    )


def gpu_phases(job: RunSpec) -> tuple[Phase, ...]:
    """Training, weight hand-over and rollouts on one GPU; with GPUs that only play, on one of these, too."""
    return tuple(phase(job) for phase, _ in _gpu_parts(job))


def _gpu_parts(job: RunSpec) -> "Iterator[tuple[Callable[[RunSpec], Phase], tuple[Remedy, ...]]]":
    """Phases of GPUs, and the remedies of each."""
    yield update_phase, TRAINING
    yield sync_phase, SYNCING
    yield rollout_phase, ROLLING
    if job.pool:
        yield arrival_phase, ARRIVING
        yield pool_phase, PLAYING


def host_phases(job: RunSpec) -> tuple[Phase, ...]:
    """Reading the model, and a step, on one node; a step on a node whose GPUs only play, if any."""
    phases = [
        Phase("while the model is read", traffic.loading_parts(job), job.machines.host_bytes),
        Phase("in a step", traffic.host_parts(job), job.machines.host_bytes),
    ]
    if job.pool:
        phases.append(Phase("whose GPUs only play, in a step", traffic.pool_host_parts(job), job.pool.host_bytes))
    return tuple(phases)


def _states(job: RunSpec, *, gradients: float = 0) -> dict[str, float]:
    """Shards on a GPU while it trains."""
    if job.streamed:
        return {}
    parts = {
        "weights": memory.weight_bytes(job.shape, job.precision) / job.shards,
        "optimizer": memory.optimizer_bytes(job.shape, job.precision) / job.shards,
    }
    if gradients:
        parts["gradients"] = gradients * job.precision.weight_bytes / job.shards
    return parts


def update_moments(job: RunSpec) -> dict[str, dict[str, float]]:
    """The trainer's own memory at the moments of an actor's update, without contexts and engines.

    At the output head only the layers' checkpoints exist; then one layer after the other is recomputed; at last, when
    the decoder's checkpoints are gone, the vision tower and the embedding; then the optimizer steps. Old
    log-probabilities, which come before it, count as a moment here. Gradients of all weights exist from an update's
    second micro-batch on; in a single one, those of the layers that its backward pass has done."""
    shape, precision, tokens, fused = job.shape, job.precision, job.micro_tokens, job.head.fused
    trained = memory.trained_parameters(shape, precision)
    lora = bool(precision.lora_rank)

    def states(done: int) -> dict[str, float]:
        return _states(job, gradients=trained if job.accumulates else min(trained, max(0, done)))

    def units(parameters: int, reduced: int) -> dict[str, float]:
        """FSDP2's root and a running unit, with the bytes of gradients to be reduced."""
        gathered = memory.root_bytes(shape, fused=fused) + memory.gathered_bytes(parameters, job.shards)
        return {"gathered units": gathered + (0 if lora else reduced)}

    # Ulysses shares a sequence's tokens among GPUs after the vision tower, which each runs whole.
    patches = round(tokens * job.ulysses * job.visual_share) * shape.vision.merge**2
    decoder = memory.decoder_bytes(tokens, shape, checkpointed=job.checkpointed)
    tower = memory.tower_bytes(patches, shape, trained=job.trains_vision, checkpointed=job.checkpointed)
    kept = {"decoder's activations": decoder, "vision tower's activations": tower}
    waits = {"gradients that wait": trained * FP32} if job.deferred else {}
    looked = replace(job.head, entropy=True)  # verl always asks for it there (trainer_base.py:1653)
    head, layer, block = shape.embedding, shape.layer, shape.block
    in_root = memory.head_in_root(shape, fused=fused)
    # The root's gradient stays unsharded until the backward pass ends; a unit's is reduced while the next one runs.
    head_waits = BF16 * head if in_root else 0
    below = shape.decoder - layer
    moments: dict[str, dict[str, float]] = {
        "at the output head": {
            **states(0),
            # the fused head's own gradient is among its logits
            **units(layer, 0 if fused else memory.reduced_bytes(max(head, layer))),
            **waits,
            **kept,
            "logits and entropy": memory.head_bytes(tokens, shape.text, job.head, trained=not lora),
        },
        "at a decoder layer": {
            **states(below + (0 if in_root else head)),
            **units(layer, max(head_waits + memory.reduced_bytes(layer), 0 if in_root else FP32 * head + BF16 * layer)),
            **waits,
            **kept,
            "one decoder layer": tokens * memory.layer_bytes(shape),
        },
        "at the vision tower": {
            **states(below + layer + (0 if in_root else head)),
            **units(block, head_waits + FP32 * layer + BF16 * block),
            **waits,
            "vision tower's activations": tower,
            "one vision block": patches * memory.block_bytes(shape),
        },
        "when the optimizer steps": {
            **_states(job, gradients=trained),
            "the step": 0 if job.streamed else memory.optimizer_step_bytes(shape, precision) / job.shards,
        },
        "at old log-probabilities": {
            **_states(job),
            **units(layer, 0),
            "logits and entropy": memory.head_bytes(tokens, shape.text, looked, trained=False),
        },
    }
    if not shape.text.tied:
        moments["at the embedding"] = {
            **states(trained - (2 if in_root else 1) * head),
            **units(head, head_waits + memory.reduced_bytes(head)),
            **waits,
        }
    return moments


def update_phase(job: RunSpec) -> Phase:
    """The actor's update at its worst moment (:func:`update_moments`), with contexts and a sleeping engine."""
    engine = {"sleeping engine": ASLEEP} if job.sleeps else {"engine": job.utilization * job.machines.gpu_bytes}
    name, worst = max(update_moments(job).items(), key=lambda moment: sum(moment[1].values()))
    return Phase(f"training, {name}", {**worst, "contexts": CONTEXTS, **engine}, job.machines.gpu_bytes)


def _between(job: RunSpec) -> dict[str, float]:
    """Memory that the trainer keeps on a GPU while engines run."""
    parts: dict[str, float] = {"trainer's contexts": CONTEXTS}
    states = _states(job)
    if states and not job.param_offload:
        parts["trainer's weights"] = states["weights"]
    if states and not job.optimizer_offload:
        parts["trainer's optimizer"] = states["optimizer"]
    return parts


def sync_phase(job: RunSpec) -> Phase:
    """The trainer hands weights to the engine on its GPU, which has its weights but no cache yet.

    FSDP2 gathers one tensor at a time; with LoRA verl first loads the whole shard (engine:993), unless it is streamed.
    """
    parts = _between(job)
    if job.precision.lora_rank and not job.streamed:
        parts["trainer's weights"] = _states(job)["weights"]
    parts["largest tensor"] = _largest_tensor(job)
    parts["bucket"] = job.bucket_bytes
    return Phase("handing weights over", {**parts, **_waiting_engine(job)}, job.machines.gpu_bytes)


def _largest_tensor(job: RunSpec) -> int:
    """The embedding, as it is held and in bfloat16."""
    return job.shape.text.vocab * job.shape.text.hidden * (job.precision.weight_bytes + BF16)


def rollout_phase(job: RunSpec) -> Phase:
    """Rollouts: the engine takes its share of the GPU next to what the trainer keeps there."""
    name = "rollouts" if not job.pool else "rollouts next to the trainer (validation)"
    return Phase(name, {**_between(job), **_running_engine(job)}, job.machines.gpu_bytes)


def _running_engine(job: RunSpec) -> dict[str, float]:
    parts: dict[str, float] = {f"engine: {name}": size for name, size in _engine_parts(job).items()}
    return {**parts, "engine: KV cache": max(0.0, engine_of(job).kv)}


def _waiting_engine(job: RunSpec) -> dict[str, float]:
    """An engine without a cache that gets weights."""
    engine = _engine_parts(job)
    return {"engine's weights": engine["weights"] + engine.get("adapters", 0), "engine's contexts": ASLEEP}


def arrival_phase(job: RunSpec) -> Phase:
    """Weights arrive at a GPU that only plays: through two buffers and the bucket that the engine reads; a tensor
    larger than a bucket comes by itself. Meanwhile the engine frees its cache, if it may sleep."""
    parts: dict[str, float] = {
        "receiver's contexts": CONTEXTS,
        "largest tensor": _largest_tensor(job),
        "buckets": (BUFFERS + 1) * job.bucket_bytes,
    }
    engine = _waiting_engine(job) if job.sleeps else {"engine": job.utilization * job.players.gpu_bytes}
    return Phase("rollouts alone, weights arriving", {**parts, **engine}, job.players.gpu_bytes)


def pool_phase(job: RunSpec) -> Phase:
    """Rollouts on a GPU that only plays: the engine's share, and no state of the trainer."""
    return Phase("rollouts alone", {**_running_engine(job), "receiver's contexts": CONTEXTS}, job.players.gpu_bytes)


def _engine_parts(job: RunSpec) -> dict[str, int]:
    return memory.engine_bytes(
        job.shape,
        tensor_parallel=job.tensor_parallel,
        batched_tokens=job.batched_tokens,
        sequences=job.sequences,
        profiled=job.profiled,
        lora_rank=job.precision.lora_rank if job.adapters_served else 0,
        eager=job.eager,
    )


def engine_of(job: RunSpec) -> EngineCache:
    """The cache: an engine's share of a GPU without its other parts."""
    kv = job.utilization * job.machines.gpu_bytes - sum(_engine_parts(job).values())
    each, state = (of(job.shape.text, job.tensor_parallel) for of in (memory.kv_bytes, memory.state_bytes))
    wanted = min(job.sequences, math.ceil(job.running / job.engines))
    longest, typical = (kv / (each * tokens + state) for tokens in (job.model_len, job.typical))
    return EngineCache(kv, longest, typical, wanted)


Change = tuple[tuple[str, ...], RunSpec]
"""Overrides, and the run with them."""
Remedy = Callable[[RunSpec], Change | None]


def _switch(field: str, wanted: bool, key: str) -> Remedy:
    """A remedy that turns a key on or off."""
    change: dict[str, Any] = {field: wanted}

    def remedy(job: RunSpec) -> Change | None:
        return None if getattr(job, field) == wanted else ((f"{key}={wanted}",), replace(job, **change))

    return remedy


def _fused(job: RunSpec) -> Change | None:
    if job.head.fused:
        return None
    return (f"{MODEL}.use_fused_kernels=True",), replace(job, head=replace(job.head, fused=True))


_checkpointed = _switch("checkpointed", True, f"{MODEL}.enable_gradient_checkpointing")
_undeferred = _switch("deferred", False, f"{FSDP}.use_no_sync_for_gradient_accumulation")
_streamed = _switch("streamed", True, f"{FSDP}.offload_policy")


def _least_micro_batch(job: RunSpec) -> Change:
    """Micro-batches that hold one sequence, the longest."""
    tokens = math.ceil(job.longest / job.ulysses)
    now = replace(job, micro_tokens=tokens, micro_batch=min(job.micro_batch, 1))
    if not job.micro_batch:
        return (f"{ACTOR}.ppo_max_token_len_per_gpu={tokens}",), now
    return tuple(f"{key}=1" for key in MICRO_BATCHES if job.micro_batch > 1), now


def _smaller_micro_batch(job: RunSpec) -> Change | None:
    change = _least_micro_batch(job)
    return change if job.micro_tokens > change[1].micro_tokens else None


def _sharded(job: RunSpec) -> Change | None:
    """Shard over all GPUs instead of a group."""
    if job.shards == job.machines.gpus:
        return None
    return (f"{FSDP_SIZE}=-1",), replace(job, fsdp_size=-1)


def _offloaded(job: RunSpec) -> Change | None:
    if job.streamed or (job.param_offload and job.optimizer_offload):
        return None
    keys = (f"{FSDP}.param_offload=True", f"{FSDP}.optimizer_offload=True")
    return keys, replace(job, param_offload=True, optimizer_offload=True)


def _shared_sequences(job: RunSpec) -> Change | None:
    """Ulysses: twice as many GPUs per sequence."""
    size = 2 * job.ulysses
    if job.machines.gpus % size or job.shape.text.heads % size:
        return None
    keys, now = _least_micro_batch(replace(job, ulysses=size))
    return (f"{ACTOR}.ulysses_sequence_parallel_size={size}", *keys), now


def _shorter(job: RunSpec) -> Change | None:
    """Three quarters of the tokens; the episode ends when they are used up."""
    longest = int(job.longest * 0.75) // 1024 * 1024
    if longest < job.typical or longest <= job.prompt:
        return None
    keys, now = _least_micro_batch(replace(job, longest=longest, model_len=longest))
    return (f"data.max_response_length={longest - job.prompt}", *keys, f"{ROLLOUT}.max_model_len={longest}"), now


def _lent(job: RunSpec) -> Change | None:
    """The largest share of a GPU that leaves the trainer its own."""
    left = job.machines.gpu_bytes * TIGHT - sum(_between(job).values())
    share = min(MOST_LENT, math.floor(20 * left / job.machines.gpu_bytes) / 20)
    if share <= 0 or share == job.utilization:
        return None
    return (f"{ROLLOUT}.gpu_memory_utilization={share:g}",), replace(job, utilization=share)


def _enough_lent(job: RunSpec) -> tuple[str, ...]:
    """The least share of a GPU with which no episode waits for the cache, or the most that can be lent."""
    most = _lent(job)
    if most is None or most[1].utilization <= job.utilization:
        return ()
    for twentieth in range(math.floor(20 * job.utilization) + 1, round(20 * most[1].utilization)):
        if (engine := engine_of(replace(job, utilization=twentieth / 20))).typical >= engine.wanted:
            return (f"{ROLLOUT}.gpu_memory_utilization={twentieth / 20:g}",)
    return most[0]


def _parallel(job: RunSpec) -> Change | None:
    size = 2 * job.tensor_parallel
    pools = [job.machines, *([job.pool] if job.pool else [])]
    server = size * job.data_parallel
    if job.shape.text.heads % size or any(size > min(pool.gpus, pool.per_node) or pool.gpus % server for pool in pools):
        return None
    return (f"{ROLLOUT}.tensor_model_parallel_size={size}",), replace(job, tensor_parallel=size)


def _smaller_engine(job: RunSpec) -> Change | None:
    tokens, sequences = min(job.batched_tokens, 8192), min(job.sequences, 32)
    if (tokens, sequences) == (job.batched_tokens, job.sequences):
        return None
    keys = (f"{ROLLOUT}.max_num_batched_tokens={tokens}", f"{ROLLOUT}.max_num_seqs={sequences}")
    return keys, replace(job, batched_tokens=tokens, sequences=sequences)


def _smaller_buckets(job: RunSpec) -> Change | None:
    if job.bucket_bytes <= 512 << 20:  # a larger tensor goes by itself
        return None
    return (f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes=512",), replace(job, bucket_bytes=512 << 20)


def _fewer_questions(job: RunSpec) -> Change | None:
    half = job.questions // 2
    if half < max(1, job.machines.gpus // job.rollouts):
        return None
    mini = min(job.mini_batch, half)
    if job.pool:  # weights are handed over after as many updates as before
        mini = half // max(1, job.questions // job.mini_batch)
    if job.pool and (not mini or half % mini):
        return None
    keys = (f"data.train_batch_size={half}", f"{ACTOR}.ppo_mini_batch_size={mini}")
    return keys, replace(job, questions=half, mini_batch=mini)


def _smaller_picture_cache(job: RunSpec) -> Change | None:
    least = PICTURE_CACHE_GIB * GIB
    if job.picture_cache <= least:
        return None
    return (f"{PICTURE_CACHE}={PICTURE_CACHE_GIB}",), replace(job, picture_cache=least)


TRAINING: tuple[Remedy, ...] = (
    _fused,
    _checkpointed,
    _undeferred,
    _smaller_micro_batch,
    _sharded,
    _streamed,
    _shared_sequences,
    _shorter,
)
ROLLING: tuple[Remedy, ...] = (_offloaded, _sharded, _lent, _smaller_engine, _parallel, _streamed)
SYNCING: tuple[Remedy, ...] = (_offloaded, _sharded, _smaller_buckets, _parallel, _streamed)
ARRIVING: tuple[Remedy, ...] = (_smaller_buckets, _parallel)
PLAYING: tuple[Remedy, ...] = (_lent, _smaller_engine, _parallel)
HOSTING: tuple[Remedy, ...] = (_smaller_picture_cache, _fewer_questions, _fewer_questions, _fewer_questions)


def mended(job: RunSpec, remedies: Sequence[Remedy], fits: Callable[[RunSpec], bool]) -> tuple[str, ...]:
    """Overrides with which something fits; empty if all of them together aren't enough.

    They are tried in order until it fits; those that turn out not to be needed are dropped."""
    taken: list[Remedy] = []

    def applied(chosen: Sequence[Remedy]) -> Change:
        words: dict[str, str] = {}
        now = job
        for remedy in chosen:
            if change := remedy(now):
                words.update({word.partition("=")[0]: word for word in change[0]})
                now = change[1]
        return tuple(words.values()), now

    for remedy in remedies:
        taken.append(remedy)
        if fits(applied(taken)[1]):
            break
    else:
        return ()
    for remedy in list(taken[:-1]):
        fewer = [kept for kept in taken if kept is not remedy]
        if fits(applied(fewer)[1]):
            taken = fewer
    return applied(taken)[0]


def _phase_fits(phase: Callable[[RunSpec], Phase], job: RunSpec) -> bool:
    return phase(job).verdict == "fits"


def _host_phase_fits(number: int, job: RunSpec) -> bool:
    return host_phases(job)[number].verdict == "fits"


def _beyond(job: RunSpec) -> Iterator[Finding]:
    """Phases that don't fit, or barely."""
    for phase, remedies in _gpu_parts(job):
        if (found := phase(job)).verdict != "fits":
            changes = mended(job, remedies, partial(_phase_fits, phase))
            yield Finding(
                found.verdict,
                f"{found.name}: {found.total / GIB:.1f} of {found.capacity / GIB:.0f} GiB of a GPU, most of it "
                f"{found.largest} ({found.parts[found.largest] / GIB:.1f} GiB)"
                + ("" if changes else _more_gpus(job, phase)),
                changes,
            )
    if (engine := engine_of(job)).longest < 1:

        def holds(changed: RunSpec) -> bool:
            plays = [rollout_phase(changed).verdict, *([pool_phase(changed).verdict] if changed.pool else [])]
            return engine_of(changed).longest >= 1 and set(plays) == {"fits"}

        changes = mended(job, (_offloaded, _sharded, _lent, _smaller_engine, _shorter, _parallel, _streamed), holds)
        yield Finding(
            "does not fit",
            f"the KV cache of an engine holds {max(0.0, engine.longest):.2f} sequences of "
            f"{ROLLOUT}.max_model_len={job.model_len}: vLLM refuses to start"
            + ("" if changes else "; no key is enough: take more or larger GPUs, or a smaller model"),
            changes,
        )
    for number, found in enumerate(host_phases(job)):
        if found.verdict != "fits":
            changes = mended(job, HOSTING, partial(_host_phase_fits, number))
            yield Finding(
                found.verdict,
                f"main memory {found.name}: {found.total / GIB:.0f} of {found.capacity / GIB:.0f} GiB of a node, "
                f"most of it {found.largest} ({found.parts[found.largest] / GIB:.0f} GiB)"
                + ("" if changes else "; no key is enough: take more nodes, or more of it"),
                changes,
            )


def _more_gpus(job: RunSpec, phase: Callable[[RunSpec], Phase]) -> str:
    """Advice on the number of GPUs where no key is enough."""
    machines = job.machines
    for factor in (2, 4, 8):
        more = replace(job, machines=replace(machines, gpus=factor * machines.gpus))
        if phase(more).verdict == "fits":
            trainer = " for the trainer" if job.pool else ""
            return f"; no key is enough: take {factor * machines.gpus} GPUs{trainer}, or a smaller model"
    return "; no key is enough: take a smaller model, or shorter sequences"


def impossible(sizes: Sizes) -> Iterator[Finding]:
    """Sizes that verl or vLLM refuses, some of them only after a step of rollouts."""
    tensor = {f"{ROLLOUT}.tensor_model_parallel_size": sizes.tensor}
    server = {**tensor, f"{ROLLOUT}.data_parallel_size": sizes.data}
    for key, size in {**server, f"{ACTOR}.ulysses_sequence_parallel_size": sizes.ulysses}.items():
        if size < 1:  # what follows divides by it
            yield Finding("does not fit", f"{key}: must be at least 1, got {size}", (f"{key}=1",))
            return
    for key, tokens in sizes.micro_tokens.items():
        # seqlen_balancing.py: "max_token_len must be greater than the sequence length"
        if tokens * sizes.ulysses < sizes.longest:
            yield Finding(
                "does not fit",
                f"a sequence may have {sizes.longest} tokens, a micro-batch ({key}) holds {tokens * sizes.ulysses}",
                (f"{key}={math.ceil(sizes.longest / sizes.ulysses)}",),
            )
    # engine_workers.py: "rollout world_size is not divisible"; vLLM: "attention heads must be divisible"
    gpus, heads = (sizes.gpus, "GPUs"), (sizes.heads, "attention heads")
    for (number, what), parts in ((gpus, server), (heads, tensor), ((sizes.playing, "GPUs that only play"), server)):
        size = math.prod(parts.values())
        if number % size:  # llm_server.py counts engines by whole division
            yield Finding(
                "does not fit",
                f"{number} {what} can't be shared by engines of {size}",
                tuple(f"{key}=1" for key, part in parts.items() if part > 1),
            )
    for number, what in (gpus, heads):
        if number % sizes.ulysses:
            yield Finding(
                "does not fit",
                f"{number} {what} can't be shared by {sizes.ulysses} GPUs a sequence",
                (f"{ACTOR}.ulysses_sequence_parallel_size=1",),
            )
    # workers/engine/fsdp/utils.py: a mesh of groups that doesn't have all GPUs
    shards = shards_of(sizes.fsdp_size, sizes.gpus)
    if sizes.gpus % shards:
        yield Finding(
            "does not fit",
            f"{sizes.gpus} GPUs can't be shared by groups of {shards} that have all weights ({FSDP_SIZE})",
            (f"{FSDP_SIZE}=-1",),
        )
    # engine_workers.py, train_mini_batch: asserted at the first update
    ranks = max(1, sizes.gpus // sizes.ulysses)
    if (size := sizes.mini_batch * sizes.rollouts) % ranks:
        step = ranks // math.gcd(ranks, sizes.rollouts)
        fit = math.ceil(sizes.mini_batch / step) * step
        yield Finding(
            "does not fit",
            f"{size} episodes of an update ({ACTOR}.ppo_mini_batch_size={sizes.mini_batch} times "
            f"{ROLLOUT}.n={sizes.rollouts}) can't be shared by {ranks} ranks",
            (
                f"{ACTOR}.ppo_mini_batch_size={fit}",
                f"data.train_batch_size={max(fit, math.ceil(sizes.questions / fit) * fit)}",
            ),
        )


def _wrong(job: RunSpec) -> Iterator[Finding]:
    """Impossible sizes, and engines that cut episodes short."""
    yield from impossible(job.sizes)
    if job.model_len < job.longest:
        yield Finding(
            "does not fit",
            f"a sequence may have {job.longest} tokens, an engine takes {job.model_len}",
            (f"{ROLLOUT}.max_model_len={job.longest}",),
        )


def _slow(job: RunSpec, rates: Rates) -> Iterator[Finding]:
    """Settings that work but cost time, or more memory than expected."""
    if traffic.readers(job) > 1:
        parts = traffic.loading_parts(job)
        read = parts["model as it is read"] + parts.get("reference model", 0)
        yield Finding(
            "fits",
            f"the model's embedding is tied to its head, so that each of a node's {traffic.readers(job)} processes "
            f"reads all weights: {read / GIB:.0f} GiB of main memory while the model is read",
        )
    engine = engine_of(job)
    if engine.longest >= 1 and engine.typical < engine.wanted:
        yield Finding(
            "fits",
            f"the KV cache of an engine holds {engine.typical:.0f} typical sequences of {job.typical} tokens of the "
            f"{engine.wanted} that it is given: the others wait",
            _enough_lent(job),
        )
    pictures = traffic.engine_pictures(job)
    if pictures.wants > pictures.holds:
        size = math.ceil(pictures.bytes / GIB)
        larger = host_phases(replace(job, picture_cache=size * GIB))[1]
        yield Finding(
            "fits",
            f"an engine keeps {pictures.holds} processed frames, its questions of a step have up to {pictures.wants}: "
            "some are processed again",
            (f"++{PICTURE_CACHE}={size}",) if larger.verdict == "fits" else (),
        )
    times = step_seconds(job, engine.typical, rates)
    slowest = max(times.rollouts, key=lambda name: times.rollouts[name].seconds)
    if slowest == "decoding" and (taken := times.rollouts["decoding"].seconds) == times.rolling:
        yield Finding(
            "fits",
            f"decoding is estimated at {taken:.0f} s a step, longer than engines need",
            (f"agentic_video.frame_store.workers={4 * job.decoders}",),
        )
