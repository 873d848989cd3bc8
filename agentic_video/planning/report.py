"""A plan as text and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig

from agentic_video.planning.job import Machines, gpus_of, job_of
from agentic_video.planning.plan import Phase, Plan, make_plan
from agentic_video.planning.rates import Rates
from agentic_video.planning.seconds import Estimate
from agentic_video.utils.errors import SetupError
from agentic_video.utils.units import GIB


def plan_of(
    config: DictConfig,
    gpus: int | None = None,
    gpu_gib: float = 80,
    host_gib: float = 1024,
    *,
    per_node: int | None = None,
    model: str = "",
    rates: Rates | None = None,
) -> Plan:
    """The plan of a GRPO run.

    Args:
        gpus: GPUs in all, those that only play episodes included; None takes the config's.
        per_node: GPUs of a node; None takes the config's, or as many as there are.
        model: Folder or name of the model; see :func:`agentic_video.planning.job.job_of`.
        rates: Rates of the GPUs; None takes the shipped ones.
    """
    count, _ = gpus_of(config, gpus)
    machines = Machines(
        count, gpu_gib * GIB, host_gib * GIB, min(per_node or int(config.trainer.n_gpus_per_node), count)
    )
    return make_plan(job_of(config, machines, model), rates)


def plan_summary(config: DictConfig) -> str:
    """The plan of a dry run for GPUs of 80 GiB, or why there is none."""
    try:
        return f"{text_of(plan_of(config))}\nother machines: agentic-video plan --help"
    except SetupError as error:
        return f"no plan: {error}"


def text_of(plan: Plan) -> str:
    """A plan for people."""
    job, machines = plan.job, plan.job.machines
    alone = f", rollouts on {_gpus(job.pool)}" if job.pool else ""
    lines = [
        f"{job.shape.name}, {job.shape.parameters / 1e9:.2f} billion parameters, on {_gpus(machines)}{alone}",
        f"a step: {job.questions} questions x {job.rollouts} rollouts; a typical episode: {job.episode.frames} frames "
        f"of {job.frame_size[0]} x {job.frame_size[1]}, {job.typical} tokens; the longest: {job.longest}",
        "",
    ]
    for phase in plan.gpu:
        lines += _phase(f"GPU, {phase.name}", phase)
    engine = plan.engine
    lines += [
        f"  KV cache of an engine: {max(0.0, engine.longest):.1f} sequences of {job.model_len} tokens, "
        f"{max(0.0, engine.typical):.1f} of {job.typical}; it is given {engine.wanted} at a time",
        "",
    ]
    for phase in plan.host:
        lines += _phase(f"main memory of a node, {phase.name}", phase)
    for title, moved in (
        ("moved in a step", plan.hops),
        ("moved of pixels by stock verl, as patches in float32", plan.stock_hops),
    ):
        lines += [title, *(_row(hop.name, f"{hop.bytes / 1e9:9.1f} GB") for hop in moved), ""]
    times = plan.seconds
    beside = ", at the same time" if times.apart else ""
    lines += ["seconds of a step: rollouts, whose parts overlap", *_estimates(times.rollouts)]
    lines += [f"seconds of a step: trainer, one after the other{beside}", *_estimates(times.trainer)]
    lines += [
        f"a step, at least: {times.total:.0f} s (rollouts {times.rolling:.0f} s, trainer {times.training:.0f} s)",
        "",
    ]
    for found in plan.findings:
        lines.append(f"{'!!' if found.verdict != 'fits' else '--'} {found.text}")
        lines += [f"   -> {change}" for change in found.changes]
    return "\n".join([*lines, f"verdict: {plan.verdict}"])


def _gpus(machines: Machines) -> str:
    nodes = f"{machines.nodes} node{'s' if machines.nodes > 1 else ''}"
    return f"{machines.gpus} x {machines.gpu_bytes / GIB:g} GiB in {nodes} of {machines.host_bytes / GIB:g} GiB"


def _phase(title: str, phase: Phase) -> list[str]:
    lines = [f"{title}: {phase.total / GIB:.1f} of {phase.capacity / GIB:g} GiB, {phase.verdict}"]
    parts = sorted(phase.parts.items(), key=lambda part: -part[1])
    return [*lines, *(_row(name, f"{size / GIB:9.1f} GiB") for name, size in parts if size >= 0.05 * GIB), ""]


def _estimates(parts: Mapping[str, Estimate]) -> list[str]:
    return [_row(name, f"{part.seconds:9.1f} s   {part.kind} ({part.source})") for name, part in parts.items()]


def _row(name: str, value: str) -> str:
    return f"  {name:44} {value}"


def values_of(plan: Plan) -> dict[str, Any]:
    """A plan for programs: bytes and seconds as plain numbers."""
    job = plan.job

    def values(phases: Sequence[Phase]) -> list[dict[str, Any]]:
        return [{**vars(phase), "verdict": phase.verdict, "total": phase.total} for phase in phases]

    return {
        "verdict": plan.verdict,
        "model": job.shape.name,
        "parameters": job.shape.parameters,
        "gpus": job.machines.gpus,
        "rollout_gpus": job.pool.gpus if job.pool else 0,
        "gpu_bytes": job.machines.gpu_bytes,
        "host_bytes": job.machines.host_bytes,
        "nodes": job.machines.nodes,
        "gpu": values(plan.gpu),
        "host": values(plan.host),
        "engine": {
            "kv_bytes": plan.engine.kv,
            "longest_sequences": plan.engine.longest,
            "typical_sequences": plan.engine.typical,
            "wanted_sequences": plan.engine.wanted,
        },
        "moved_bytes": {hop.name: hop.bytes for hop in plan.hops},
        "stock_moved_bytes": {hop.name: hop.bytes for hop in plan.stock_hops},
        "seconds": {
            "rollouts": {name: vars(part) for name, part in plan.seconds.rollouts.items()},
            "trainer": {name: vars(part) for name, part in plan.seconds.trainer.items()},
            "rollouts_at_least": plan.seconds.rolling,
            "trainer_in_all": plan.seconds.training,
            "step_at_least": plan.seconds.total,
        },
        "findings": [{**vars(finding), "changes": list(finding.changes)} for finding in plan.findings],
    }
