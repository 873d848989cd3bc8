"""Record a teacher's demonstrations: it plays a system's episodes over rows, and what verifies is kept, ready for SFT.

    agentic-video distill --system videozoomer --data train.jsonl --teacher http://host:8000/v1 --out DIR
    agentic-video distill --system videozoomer --out DIR    # small, without a GPU: a scripted teacher, synthetic videos

The same command resumes where it was killed. ``key=value`` arguments are Hydra overrides of the recipe's config.
"""

from dataclasses import replace
from pathlib import Path

from agentic_video.commands.guard import run_job
from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import settings_of
from agentic_video.evaluation.engine import SCRIPTED
from agentic_video.launch.toyworld import build_toyworld, laptop_overrides
from agentic_video.synthesis.distill import DistillOptions, distill
from agentic_video.synthesis.template_mix import OPTION
from agentic_video.utils.errors import SetupError
from agentic_video.utils.host import count_gpus
from agentic_video.utils.imports import make_importable


def run(options: DistillOptions) -> int:
    """Distil; returns the exit status, 1 when an episode couldn't be played."""
    return run_job(lambda: distill(options if options.teacher else with_scripted_teacher(options)))


def with_scripted_teacher(options: DistillOptions) -> DistillOptions:
    """Return the options with the scripted teacher, and the synthetic rows where they name none."""
    from agentic_video.toyworld.build.recipe import toy_recipe
    from agentic_video.toyworld.teacher import teacher_name

    if options.template_mix:
        raise SetupError(f"{OPTION}: the scripted teacher follows no templates; name one with --teacher", key=OPTION)
    if options.profile == "cluster" or (count_gpus() and options.profile is None):
        raise SetupError(
            "name a teacher with --teacher (the address of a server, or a checkpoint), or --profile laptop for the "
            "scripted one",
            key="--teacher",
        )
    recipe = options.recipe_folder()
    make_importable(recipe)
    config = compose_recipe(recipe, "laptop", options.overrides)
    # before anything is built
    teacher = teacher_name(settings_of(config).system, toy_recipe(config).oracle)
    options = replace(options, teacher=teacher, engine=SCRIPTED, profile="laptop", single_teacher=True)
    if options.data:
        return options
    paths = build_toyworld(recipe, options.overrides, model="none")
    built = [text for text in laptop_overrides(paths) if not text.startswith("data.")]
    return replace(options, data=(Path(paths["train"]),), overrides=(*built, *options.overrides))
