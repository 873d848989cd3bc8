"""The command that trains: verl's program for a stage, with the recipe's config."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentic_video.launch.profile import LaunchError, config_name

TORCHRUN = {"sft": "agentic_video.training.sft", "kto": "agentic_video.training.kto_trainer"}
"""The stages that torchrun starts, one process a device, and their programs. GRPO's processes are Ray's."""


def stage_command(
    stage: str, profile: str, recipe: Path, gpus: int, environment: Mapping[str, str], overrides: Sequence[str]
) -> list[str]:
    """The command that trains, without what depends on the run's folder.

    Args:
        overrides: The user's, which may set the number of machines and of devices.

    Raises:
        LaunchError: The config doesn't compose, or a torchrun over several machines isn't told where they meet.
    """
    name = config_name(stage, profile)
    config = ["--config-dir", str(recipe / "config"), "--config-name", name]
    if stage not in TORCHRUN:
        return [sys.executable, "-m", "verl.trainer.main_ppo", *config]

    from hydra.errors import HydraException

    from agentic_video.config.compose import compose_recipe

    sizes = []
    if profile == "cluster":
        sizes = [f"trainer.nnodes={environment.get('NNODES') or 1}",
                 f"trainer.n_gpus_per_node={environment.get('GPUS_PER_NODE') or gpus}"]  # fmt: skip
    try:
        trainer = compose_recipe(recipe, name, [*sizes, *overrides]).trainer
    except HydraException as error:
        raise LaunchError(str(error)) from error
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={trainer.n_gpus_per_node}"]
    if trainer.nnodes == 1:
        command.append("--standalone")
    else:
        if missing := [name for name in ("MASTER_ADDR", "NODE_RANK") if not environment.get(name)]:
            raise LaunchError(
                f"{trainer.nnodes} machines, but {' and '.join(missing)} not set: run the same command on each, with "
                "MASTER_ADDR (the first one's address) and NODE_RANK (0, 1, ...)"
            )
        if not any(text.startswith("trainer.default_local_dir=") for text in overrides):
            raise LaunchError("several machines need one folder for checkpoints: trainer.default_local_dir=/shared/...")
        command += [f"--nnodes={trainer.nnodes}", f"--node-rank={environment['NODE_RANK']}"]
        command += [f"--master-addr={environment['MASTER_ADDR']}"]
        command += [f"--master-port={environment.get('MASTER_PORT') or 29500}"]
    return [*command, "-m", TORCHRUN[stage], *config, *sizes]


def ray_overrides(environment: Mapping[str, str], variables: Mapping[str, str], temporary: Path) -> list[str]:
    """How verl reaches Ray: a cluster that RAY_ADDRESS names, or one of its own in the temporary folder."""
    if environment.get("RAY_ADDRESS"):
        pairs = [f"+ray_kwargs.ray_init.runtime_env.env_vars.{key}='{value}'" for key, value in variables.items()]
        sizes = ["ray_kwargs.ray_init.num_cpus=null", "++ray_kwargs.ray_init.num_gpus=null"]
        return [*sizes, "+ray_kwargs.ray_init.ignore_reinit_error=True", *pairs]
    return [f"+ray_kwargs.ray_init._temp_dir={temporary / 'ray'}"]
