"""The command that trains: verl's program for a stage, with the recipe's config."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import settings_of
from agentic_video.launch.options import LaunchOptions, Profile, Stage
from agentic_video.launch.profile import config_name
from agentic_video.systems.reward_function import load_function
from agentic_video.utils.errors import SetupError

TORCHRUN: Mapping[Stage, str] = {"sft": "agentic_video.training.sft", "kto": "agentic_video.training.kto_trainer"}
"""The stages that torchrun starts, one process a device, and their programs. GRPO's processes are Ray's."""


def stage_command(options: LaunchOptions, profile: Profile, gpus: int, environment: Mapping[str, str]) -> list[str]:
    """The command that trains, without what depends on the run's folder and without the user's overrides.

    The config is composed and its ``agentic_video`` block read first: a mistake in it costs no build and no start.

    Args:
        options: Whose overrides may set the number of machines and of devices.
        profile: The chosen one.
        gpus: Number of GPUs of this machine.
        environment: Environment variables; ``NNODES`` and ``GPUS_PER_NODE`` set the sizes of a cluster.

    Raises:
        SetupError: The config doesn't compose, a key of ours is wrong, or a torchrun over several machines isn't told
            where they meet.
    """
    name = config_name(options.stage, profile)
    config = ["--config-dir", str(options.recipe / "config"), "--config-name", name]
    if options.stage not in TORCHRUN:
        _checked_config(options, name, options.overrides)
        return [sys.executable, "-m", "verl.trainer.main_ppo", *config]
    sizes = []
    if profile == "cluster":
        sizes = [
            f"trainer.nnodes={environment.get('NNODES') or 1}",
            f"trainer.n_gpus_per_node={environment.get('GPUS_PER_NODE') or gpus}",
        ]
    trainer = _checked_config(options, name, [*sizes, *options.overrides]).trainer
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={trainer.n_gpus_per_node}"]
    command += ["--standalone"] if trainer.nnodes == 1 else _meeting(trainer.nnodes, options, environment)
    return [*command, "-m", TORCHRUN[options.stage], *config, *sizes]


def _checked_config(options: LaunchOptions, name: str, overrides: Sequence[str]) -> DictConfig:
    """A stage's config, whose ``agentic_video`` block can be used.

    Raises:
        SetupError: It can't; the message names the key.
    """
    try:
        config = compose_recipe(options.recipe, name, overrides)
        settings = settings_of(config)
        if settings.reward.path:
            load_function(settings.reward.path, settings.reward.name)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise SetupError(str(error)) from error
    return config


def _meeting(machines: int, options: LaunchOptions, environment: Mapping[str, str]) -> list[str]:
    """How a torchrun over several machines finds the others.

    Raises:
        SetupError: It isn't told where they meet, or where they share their checkpoints.
    """
    if missing := [name for name in ("MASTER_ADDR", "NODE_RANK") if not environment.get(name)]:
        raise SetupError(
            f"{machines} machines, but {' and '.join(missing)} not set: run the same command on each, with "
            "MASTER_ADDR (the first one's address) and NODE_RANK (0, 1, ...)"
        )
    if not any(text.startswith("trainer.default_local_dir=") for text in options.overrides):
        raise SetupError("several machines need one folder for checkpoints: trainer.default_local_dir=/shared/...")
    return [
        f"--nnodes={machines}",
        f"--node-rank={environment['NODE_RANK']}",
        f"--master-addr={environment['MASTER_ADDR']}",
        f"--master-port={environment.get('MASTER_PORT') or 29500}",
    ]


def folder_overrides(stage: Stage, folder: Path) -> list[str]:
    """Where a run's outputs go: into its folder."""
    overrides = [f"hydra.run.dir={folder / 'hydra'}", f"trainer.default_local_dir={folder / 'checkpoints'}"]
    if stage == "grpo":
        overrides.append(f"agentic_video.episodes_dir={folder / 'episodes'}")
    return overrides


def ray_overrides(environment: Mapping[str, str], variables: Mapping[str, str], temporary: Path) -> list[str]:
    """How verl reaches Ray: a cluster that ``RAY_ADDRESS`` names, or one of its own in the temporary folder.

    Args:
        environment: Environment variables of this command.
        variables: Those that the processes on a cluster get.
        temporary: The job's temporary folder.
    """
    if environment.get("RAY_ADDRESS"):
        pairs = [f"+ray_kwargs.ray_init.runtime_env.env_vars.{key}='{value}'" for key, value in variables.items()]
        sizes = ["ray_kwargs.ray_init.num_cpus=null", "++ray_kwargs.ray_init.num_gpus=null"]
        return [*sizes, "+ray_kwargs.ray_init.ignore_reinit_error=True", *pairs]
    return [f"+ray_kwargs.ray_init._temp_dir={temporary / 'ray'}"]
