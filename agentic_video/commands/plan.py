"""Plan a GRPO run before it is booked: does it fit, what does it move, and which key to change.

    agentic-video plan --recipe videozoomer --gpus 16 --gpu-memory 80 --host-memory 1024
    agentic-video plan --recipe videozoomer --profile single --gpus 1 --gpu-memory 24 --host-memory 64
    agentic-video plan --recipe eva --model Qwen2.5-VL-32B actor_rollout_ref.model.use_fused_kernels=True

Needs no GPU, no network and no weights. key=value arguments are Hydra overrides, as for the command run. Exit status:
0 when it fits, or is tight; 1 when it doesn't fit; 2 for a mistake in the command, what a launch refuses among them.
"""

import argparse
import json
import math

from agentic_video.commands.guard import guarded
from agentic_video.commands.numbers import amount, positive

TAKES_OVERRIDES = True

PROFILES = ("cluster", "single", "four")
"""``cluster.yaml`` itself, and the lists of changes to it that are made for few GPUs."""
GPUS = {"single": 1, "four": 4}


def gib(text: str) -> float:
    """Memory above 0, for :mod:`argparse`."""
    if not (value := amount(text)):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video plan``."""
    parser.usage = "agentic-video plan --recipe RECIPE [options] [key=value ...]"
    parser.add_argument("--recipe", required=True, metavar="RECIPE", help="name of a recipe, or its folder")
    parser.add_argument("--profile", choices=PROFILES, default="cluster", help="size of the job (default: %(default)s)")
    parser.add_argument(
        "--gpus",
        type=positive,
        metavar="N",
        help="in all, those that only play episodes included (default: the recipe's; single 1, four 4)",
    )
    parser.add_argument("--gpus-per-node", type=positive, metavar="N", help="of a node (default: the recipe's)")
    parser.add_argument("--gpu-memory", type=gib, default=80.0, metavar="GIB", help="of a GPU (default: 80)")
    parser.add_argument("--host-memory", type=gib, default=1024.0, metavar="GIB", help="of a node (default: 1024)")
    parser.add_argument(
        "--model", default="", metavar="MODEL", help="folder with config.json, or name (default: the recipe's)"
    )
    parser.add_argument("--json", action="store_true", help="print json, in bytes and seconds")


def run(arguments: argparse.Namespace) -> int:
    """Plan.

    Args:
        arguments: What :func:`add_arguments` reads, and ``overrides``.

    Returns:
        Exit status: 0 when it fits or is tight, 1 when it doesn't fit, 2 for a mistake in the command.
    """
    return guarded(_run, arguments, models=False)


def _run(arguments: argparse.Namespace) -> int:
    from agentic_video.config.compose import compose_recipe, recipe_at
    from agentic_video.config.features import check_verl_features
    from agentic_video.config.overrides import check_overrides
    from agentic_video.launch.profile import changes
    from agentic_video.launch.stage import check_sizes, with_workers
    from agentic_video.planning.job import CPUS_OF_A_GPU, check_counts, gpus_of
    from agentic_video.planning.report import plan_of, text_of, values_of
    from agentic_video.planning.shapes import shape_of

    check_overrides(arguments.overrides)
    if arguments.model:
        shape_of(arguments.model)  # that it is there is looked at first
    profile = arguments.profile
    config = compose_recipe(recipe_at(arguments.recipe), "cluster", [*changes(profile), *arguments.overrides])
    check_counts(config)
    gpus = arguments.gpus or GPUS.get(profile)
    trainers, _ = gpus_of(config, gpus)
    sized = config.copy()  # the launcher's check takes the config's numbers of GPUs
    sized.trainer.nnodes, sized.trainer.n_gpus_per_node = 1, trainers
    check_sizes(sized, "grpo")
    check_verl_features(config)
    if profile == "cluster":  # as the launcher does
        per_node = arguments.gpus_per_node or int(config.trainer.n_gpus_per_node)
        nodes = math.ceil(trainers / per_node) if arguments.gpus else int(config.trainer.nnodes)
        config = with_workers(config, nodes, CPUS_OF_A_GPU * per_node, arguments.overrides)
    plan = plan_of(
        config,
        gpus,
        arguments.gpu_memory,
        arguments.host_memory,
        per_node=arguments.gpus_per_node,
        model=arguments.model,
    )
    print(json.dumps(values_of(plan), indent=2) if arguments.json else text_of(plan))
    return int(plan.verdict == "does not fit")
