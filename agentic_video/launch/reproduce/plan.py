"""The plan of a reproduction: its data, its stages, their costs, and what is missing."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from omegaconf import DictConfig

from agentic_video.launch.options import LaunchOptions
from agentic_video.launch.reproduce.chain import ChainStage
from agentic_video.launch.reproduce.reproduction import Reproduction, Step, profile_of, shown
from agentic_video.launch.stage import size_overrides, total_steps, with_counts, with_workers
from agentic_video.planning.job import CPUS_OF_A_GPU
from agentic_video.planning.plan import Plan
from agentic_video.planning.report import plan_of
from agentic_video.utils.errors import SetupError
from agentic_video.utils.units import GIB, duration

NOT_MEASURED = "time and memory are not measured"
NONE: Mapping[str, str] = MappingProxyType({})


def plan_text(
    reproduction: Reproduction, missing: Sequence[str], gpus: int = 0, environment: Mapping[str, str] = NONE
) -> str:
    """The plan as text; without GPUs here it is for those of the recipe."""
    chain, options, steps = reproduction.chain, reproduction.options, reproduction.steps
    if chain.mode == "laptop":
        lines = [
            f"REHEARSAL of {chain.paper} on the synthetic world: tiny models, made-up videos, a few steps, no GPU.",
            "It shows that every stage works with the next. None of its figures is the paper's, or comparable.",
        ]
        cost = chain.toyworld.took or NOT_MEASURED
    else:
        lines = [f"{chain.paper}, as published: from {reproduction.base} to the table of its benchmarks."]
        lines += [f"note: {remark}" for remark in chain.remarks]
        cost = f"of stages without a line of it above, {NOT_MEASURED}"
    lines += [f"folder: {shown(options.out)}"]
    stages = [stage for stage in reproduction.stages if not stage.left_out]
    if downloads := reproduction.downloads(stages):
        lines += ["", "data (docs/datasets.md), a folder each with annotations and videos, or links to them:"]
        for folder in downloads:
            there = "there" if (options.data / folder).exists() else "MISSING"
            lines += [f"  {shown(options.data / folder)}: {there}", f"      {reproduction.how_to_get(folder)}"]
    if settings := reproduction.settings_of(stages):
        lines += ["", "servers and settings (--set NAME=VALUE):"]
        lines += [f"  {name}: {options.settings.get(name) or 'MISSING'}; {chain.settings[name]}" for name in settings]
    lines += ["", "stages:"]
    for number, step in enumerate(steps, 1):
        lines += _step_lines(reproduction, number, step, gpus, environment)
    lines += [f"  {len(steps) + 1:2}. table [always]: {shown(options.out / 'table.md')}", "", f"cost: {cost}", ""]
    problems = [*reproduction.changed(), *missing]
    lines += (
        [f"missing ({len(problems)}):", *(f"  - {line}" for line in problems)] if problems else ["nothing is missing"]
    )
    return "\n".join(lines)


def _step_lines(
    reproduction: Reproduction, number: int, step: Step, gpus: int, environment: Mapping[str, str]
) -> Iterator[str]:
    stage = step.stage
    source = f" ({stage.source})" if stage.source else ""
    yield f"  {number:2}. {stage.name} [{step.action}]: {stage.about}{source}"
    if step.note:
        yield f"      {step.note}"
    if step.starts or step.action == "changed":
        yield f"      $ {reproduction.shell(stage)}"
        if cost := cost_of(reproduction, stage, gpus, environment):
            yield f"      cost: {cost}"


def cost_of(reproduction: Reproduction, stage: ChainStage, gpus: int = 0, environment: Mapping[str, str] = NONE) -> str:
    """Known time and memory of a stage, in one line; empty where nothing is known. See :func:`plan_text`."""
    if reproduction.chain.mode == "laptop":
        return ""
    published = f"the paper: {stage.cost}" if stage.cost else ""
    if stage.trained != "grpo":
        return published
    try:
        config = _launched(reproduction, stage, gpus, environment)
        planned = _planned(plan_of(config, model=reproduction.model_of(stage)), stage, config)
    except SetupError as error:
        planned = f"no plan: {error}"
    return "; ".join(filter(None, [planned, published]))


def _launched(reproduction: Reproduction, stage: ChainStage, gpus: int, environment: Mapping[str, str]) -> DictConfig:
    """A GRPO stage's config as the launcher fits it to the available machines."""
    profile = profile_of(stage.words, "cluster")
    words = tuple(reproduction.overrides(stage))
    config = reproduction.config(stage)
    assert config is not None
    options = LaunchOptions(reproduction.chain.recipe, overrides=words)
    config = with_counts(config, size_overrides(options, profile, gpus, environment, config), words)
    if profile != "cluster":
        return config
    return with_workers(config, config.trainer.nnodes, CPUS_OF_A_GPU * config.trainer.n_gpus_per_node, words)


def _planned(plan: Plan, stage: ChainStage, config: DictConfig) -> str:
    """Memory and least seconds of a GRPO stage, computed and not measured."""
    peak = max(plan.gpu, key=lambda phase: phase.total)
    machines, least = plan.job.machines, plan.seconds.total
    text = (
        f"computed, not measured: {machines.gpus} GPUs of {machines.gpu_bytes / GIB:g} GiB, of which "
        f"{peak.total / GIB:.0f} are taken ({plan.verdict}); at least {least:.0f} s a step"
    )
    most = int(config.data.get("train_max_samples") or 0)
    steps = total_steps(config, min(stage.rows, most) if most > 0 else stage.rows)
    return f"{text}; {steps} steps, so at least {duration(least * steps)}" if steps else text
