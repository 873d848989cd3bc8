"""Record a teacher's demonstrations: it plays a system's episodes over rows, and what verifies is kept, ready for SFT.

    agentic-video distill --system videozoomer --data train.jsonl --teacher http://host:8000/v1 --out DIR
    agentic-video distill --system videozoomer --out DIR    # small, without a GPU: a scripted teacher, synthetic videos

The same command resumes where it was killed. ``key=value`` arguments are Hydra overrides of the recipe's config.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import NonNegativeInt, PositiveInt
from tyro.conf import UseAppendAction

from agentic_video.commands.engine import SCRIPTED
from agentic_video.commands.teachers import TeacherArguments, run_job
from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import settings_of
from agentic_video.launch.toyworld import build_toyworld, laptop_overrides
from agentic_video.synthesis.distill import DistillOptions, distill
from agentic_video.synthesis.jobs import JobReport
from agentic_video.synthesis.team import TeamOptions
from agentic_video.synthesis.template_mix import OPTION, read_mix
from agentic_video.utils.errors import SetupError
from agentic_video.utils.host import count_gpus
from agentic_video.utils.imports import make_importable
from agentic_video.utils.option_types import Fraction, ModelName


@dataclass(frozen=True, kw_only=True)
class DistillArguments(TeacherArguments):
    """Rows, their teacher, and which demonstrations are kept."""

    teacher: ModelName = ""
    """address of an OpenAI-compatible server (http://host:8000/v1), or folder of a checkpoint (default: where there is
    no GPU, a scripted one that knows the answers)"""
    data: UseAppendAction[tuple[Path, ...]] = ()
    """parquet or jsonl file of rows; may be repeated (default with the scripted teacher: the synthetic rows)"""
    samples: PositiveInt = 1
    """episodes of each question"""
    min_acc: Fraction = 1.0
    """an answer graded at least this is right; lower it for open-ended rows that are graded by degrees"""
    critic: str = ""
    """server of a second model that rejects illogical paths"""
    critic_model: str = ""
    """name of the critic on its server, where it has several"""
    template_mix: str = ""
    """NAME:WEIGHT,..., for the system that has reasoning templates: how often the teacher is asked to follow each
    (direct, single_pass, timestamp_grounded, hierarchical, multi_interval), or none (free); an episode that follows
    another one isn't kept (default: it plays freely)"""
    single_teacher: bool = False
    """without thinker and experience bank, for the system that is taught by a team"""
    thinker_rounds: NonNegativeInt = TeamOptions.thinker_rounds
    """of a team: most times that a call is written again"""
    experiences: NonNegativeInt = TeamOptions.experiences
    """of a team: past successes shown"""
    bank_round: PositiveInt = TeamOptions.bank_round
    """of a team: the bank grows after each N questions"""


def run(options: DistillArguments) -> int:
    """Distil; returns the exit status, 1 when an episode couldn't be played."""
    return run_job(lambda: _distill(options))


def _distill(options: DistillArguments) -> JobReport:
    team = TeamOptions(options.thinker_rounds, options.experiences, options.bank_round)
    scripted = not options.teacher
    if scripted and options.template_mix:
        raise SetupError(f"{OPTION}: the scripted teacher follows no templates; name one with --teacher", key=OPTION)
    if scripted:
        options = with_scripted_teacher(options)
    critic = options.server(options.critic, options.critic_model) if options.critic else None
    return distill(
        DistillOptions(
            job=options.job,
            teacher=options.player(options.teacher, options.teacher_name),
            data=options.data,
            samples=options.samples,
            min_acc=options.min_acc,
            critic=critic,
            team=None if options.single_teacher or scripted else team,
            templates=read_mix(options.template_mix) if options.template_mix else None,
        )
    )


def with_scripted_teacher(options: DistillArguments) -> DistillArguments:
    """Return the options with the scripted teacher, and the synthetic rows where they name none."""
    from agentic_video.toyworld.build.recipe import toy_recipe
    from agentic_video.toyworld.teacher import teacher_name

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
    options = replace(options, teacher=teacher, engine=SCRIPTED, profile="laptop")
    if options.data:
        return options
    paths = build_toyworld(recipe, options.overrides, model="none")
    built = [text for text in laptop_overrides(paths) if not text.startswith("data.")]
    return replace(options, data=(Path(paths["train"]),), overrides=(*built, *options.overrides))
