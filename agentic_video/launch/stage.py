"""The command that trains: verl's program for a stage, with the recipe's config."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agentic_video.config.compose import CHOICE, compose_recipe
from agentic_video.config.features import check_sequences, check_verl_features
from agentic_video.config.overrides import parse_overrides, written
from agentic_video.config.settings import limits_of, settings_of
from agentic_video.launch.fork_server import SWITCH
from agentic_video.launch.handover import quoted
from agentic_video.launch.inputs import named_inputs, require_inputs
from agentic_video.launch.nodes import asked_in_all
from agentic_video.launch.options import ON_TOYWORLD, LaunchOptions, Profile, Stage
from agentic_video.launch.profile import changes, config_name, on_ray_cluster
from agentic_video.launch.toyworld import PACKAGE
from agentic_video.planning.job import MODEL, ROLLOUT, check_share, gpus_beside, sizes_of
from agentic_video.planning.plan import impossible
from agentic_video.planning.shapes import shape_of
from agentic_video.systems.reward_function import check_function
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.ray_cluster import shell_problem

POSITIVE = (
    "data.train_batch_size",
    "data.max_prompt_length",
    "data.max_response_length",
    "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.rollout.max_model_len",
    "actor_rollout_ref.rollout.tensor_model_parallel_size",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
    "actor_rollout_ref.actor.ppo_epochs",
    "engine.ulysses_sequence_parallel_size",
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
    "trainer.total_epochs",
    "trainer.total_training_steps",
)
"""Counts of which verl says nothing, or something else much later, when they are zero or less."""
LEAST: Mapping[str, int] = {**dict.fromkeys(POSITIVE, 1), "data.gen_batch_size": 0}
"""Keys that hold whole numbers, each with the least that makes sense; verl takes 0 prompts a fetch for its batch."""
TORCHRUN: Mapping[Stage, str] = {
    "sft": "agentic_video.training.sft",
    "kto": "agentic_video.training.kto_trainer",
    "rft": "agentic_video.training.sft",
}
"""The stages that torchrun starts, one process a device, and their programs. GRPO's processes are Ray's."""
RAY_FOLDER = "ray_kwargs.ray_init._temp_dir"
"""The config key of the folder in which a Ray cluster of a job's own has its sockets and logs."""
SOCKET_BYTES = 107
"""Longest path of a Unix socket."""
RAY_SOCKET = "av-12345678/ray/session_2026-01-01_00-00-00_123456_{pid}/sockets/plasma_store"
"""The longest that Ray makes in a temporary folder."""


def checked_config(
    options: LaunchOptions, profile: Profile, gpus: int, environment: Mapping[str, str]
) -> tuple[DictConfig, list[str]]:
    """A stage's config: composed, its ``agentic_video`` block read, its reward function loaded.

    A mistake in it costs no build and no start.

    Args:
        options: Of the job.
        profile: The chosen one.
        gpus: Number of GPUs of this machine.
        environment: Environment variables; ``NNODES`` and ``GPUS_PER_NODE`` set the sizes of a cluster.

    Returns:
        The config, with the sizes of the job; and these as overrides (:func:`size_overrides`).

    Raises:
        SetupError: No model or no data is named, the config doesn't compose, or a key's value makes no sense; the
            message names the key.
    """
    require_inputs(named_inputs(options.stage, options.overrides, environment), profile, options.stage)
    if profile != "laptop":
        _check_counts(environment)
    runs_here = not options.dry_run and not options.submit
    if options.stage == "grpo" and runs_here and not on_ray_cluster(options.stage, environment):
        _check_temporary(gettempdir(), options.overrides)
        # the laptop's processes are forked by a script in the temporary folder
        if (profile != "laptop" or environment.get(SWITCH) == "0") and shell_problem(sys.executable):
            raise SetupError(
                f"{sys.executable}: {shell_problem(sys.executable)}; make the environment in another folder, and name "
                "its python in PYTHON"
            )
    try:
        overrides = [*changes(profile), *options.overrides]
        config = compose_recipe(options.recipe, config_name(options.stage, profile), overrides)
        sizes = size_overrides(options, profile, gpus, environment, config)
        config = with_counts(config, sizes, options.overrides)
        if options.stage in TORCHRUN and "actor_rollout_ref" in config:
            chosen = next((text for text in overrides if text.startswith(CHOICE)), "actor_rollout_ref")
            raise SetupError(f"{chosen} is GRPO's (run_grpo.sh): {options.stage} has no rollouts; leave it out")
        settings = settings_of(config)
        check_function(settings.reward)
        # the launcher trains a retrieval model for the synthetic world where a recipe wants one
        own_clip = profile in ON_TOYWORLD and OmegaConf.select(config, "agentic_video.toyworld.clip")
        finds = options.stage == "grpo" and settings.system.overview == "retrieval"
        if finds and not settings.retrieval.model and not own_clip:
            raise SetupError("agentic_video.system.overview=retrieval: needs agentic_video.retrieval.model")
        check_sizes(config, options.stage)
        check_verl_features(config)
        check_sequences(config, settings.system)
    except (OmegaConfBaseException, ValueError) as error:
        raise SetupError(one_line(error)) from error
    return config, sizes


def _check_counts(environment: Mapping[str, str]) -> None:
    """Make sure that the variables which set a cluster's sizes are counts."""
    for name, what in (("NNODES", "machines"), ("GPUS_PER_NODE", "GPUs of each machine")):
        value = environment.get(name)
        if value and not (value.isascii() and value.isdecimal() and int(value)):
            raise SetupError(f"{name}={value}: must be the number of {what}, e.g. {name}=2")


def _check_temporary(folder: str, overrides: Sequence[str]) -> None:
    """Make sure that Ray can have its sockets below the temporary folder; it says why it can't in a log, if at all."""
    if RAY_FOLDER in _named(overrides):
        return
    most = SOCKET_BYTES - len("/" + RAY_SOCKET.format(pid=os.getpid()))
    problem = ""
    if len(os.fsencode(folder)) > most:
        problem = f"longer than {most} bytes, which is too long for Ray's sockets"
    else:
        problem = shell_problem(folder)
    if problem:
        raise SetupError(f"temporary folder {folder}: {problem}; set TMPDIR to another, e.g. TMPDIR=/tmp")


def check_sizes(config: DictConfig, stage: Stage) -> None:
    """Make sure that counts which verl takes as they are make sense.

    Args:
        config: Of a run, composed.

    Raises:
        SetupError: One doesn't; the message names it.
    """
    for key, least in LEAST.items():
        value = OmegaConf.select(config, key, throw_on_missing=False)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise SetupError(f"{key}: expected a whole number, got {written(value)}")
        if value < least:
            raise SetupError(f"{key}: must be at least {least}, got {value}")
    if stage == "grpo" and config.actor_rollout_ref.rollout.n == 1 and config.algorithm.filter_groups.enable:
        raise SetupError(
            "actor_rollout_ref.rollout.n: a group of one has no advantages, and algorithm.filter_groups.enable would "
            "drop every group; set n to 2 or more"
        )
    if stage == "grpo":
        limits = limits_of(config)
        for finding in impossible(sizes_of(config, limits.prompt + limits.response, heads=_heads(config))):
            raise SetupError(f"{finding.text}: set {' '.join(finding.changes)}")
        _check_engine(config)
        _check_validation(config.actor_rollout_ref.rollout.val_kwargs)
    else:
        _check_samples(config, stage)


def _check_validation(sampling: DictConfig) -> None:
    """Make sure that a validation which is greedy isn't asked for more."""
    if not sampling.do_sample and (sampling.temperature > 0 or sampling.n > 1):
        key = f"{ROLLOUT}.val_kwargs"
        raise SetupError(
            f"{key}.do_sample=False: a greedy validation has temperature 0 and one episode a question, but "
            f"{key}.temperature={sampling.temperature} and .n={sampling.n}; set {key}.do_sample=True to sample"
        )


def _check_samples(config: DictConfig, stage: Stage) -> None:
    """Make sure that what torchrun starts can take the longest sample, and has what it is to validate on."""
    data, ranks = config.data, config.engine.ulysses_sequence_parallel_size
    longest = data.max_prompt_length + data.max_response_length
    if data.use_dynamic_bsz and data.max_token_len_per_gpu * ranks < longest:
        raise SetupError(
            f"data.max_token_len_per_gpu={data.max_token_len_per_gpu}: a sample may have {longest} tokens "
            f"(data.max_prompt_length + data.max_response_length), on {ranks} ranks of "
            f"engine.ulysses_sequence_parallel_size; set data.max_token_len_per_gpu={-(-longest // ranks)}, or "
            "shorter samples by those two keys"
        )
    shares = config.trainer.nnodes * config.trainer.n_gpus_per_node // ranks
    # KTO's reference point pairs a question with another trajectory of its rank
    least = shares * (2 if stage == "kto" else 1)
    if data.train_batch_size % max(1, shares) or data.train_batch_size < least:
        # verl would round it down, without a word
        raise SetupError(
            f"data.train_batch_size={data.train_batch_size} can't be shared by {shares} data-parallel ranks"
            f"{', two trajectories for each' if stage == 'kto' else ''}: set "
            f"data.train_batch_size={max(least, -(-data.train_batch_size // shares) * shares)}"
        )
    frequency = config.trainer.test_freq
    if isinstance(frequency, int) and frequency > 0 and _is_null(data, "val_files"):
        raise SetupError(f"trainer.test_freq={frequency}: nothing to validate on; set VAL_FILES")


def _is_null(block: DictConfig, key: str) -> bool:
    """Whether a key is null; one that can't be resolved yet, as the laptop's files are to be made, isn't."""
    try:
        return block[key] is None
    except OmegaConfBaseException:
        return False


def _heads(config: DictConfig) -> int:
    """Attention heads of the model; 0 where it isn't in a folder here, or isn't one: what is wrong is said later."""
    try:
        folder = Path(str(OmegaConf.select(config, f"{MODEL}.path") or "")).expanduser()
        return shape_of(str(folder)).text.heads if (folder / "config.json").is_file() else 0
    except (OmegaConfBaseException, SetupError):
        return 0


def _check_engine(config: DictConfig) -> None:
    """Make sure that vLLM gets what it takes."""
    check_share(config)
    limit = f"{ROLLOUT}.engine_kwargs.vllm.limit_mm_per_prompt.image"
    taken = OmegaConf.select(config, limit, throw_on_missing=False)
    system = config.agentic_video.system
    # of clips an episode has fewer than of images
    shows = 0 if system.get("frames_as") == "video" else system.get("max_images", 0)
    if config.actor_rollout_ref.rollout.name == "vllm" and taken is not None and shows > taken:
        raise SetupError(
            f"agentic_video.system.max_images={system.max_images}: vLLM is told to take {taken} images of an episode; "
            f"set {limit}={system.max_images}"
        )


def total_steps(config: DictConfig, rows: int) -> int:
    """How many steps a run has; 0 where that isn't known before it says so.

    Args:
        config: Of the run.
        rows: Of its training data; 0 for an unknown number.
    """
    steps = config.trainer.get("total_training_steps")
    return int(steps or rows // config.data.train_batch_size * config.trainer.total_epochs)


def size_overrides(
    options: LaunchOptions, profile: Profile, gpus: int, environment: Mapping[str, str], config: DictConfig
) -> list[str]:
    """How many machines and GPUs a job has, where the recipe's yaml can't know.

    Those are a stage that torchrun starts, and GRPO on this machine alone, whose trainer has the GPUs that rollouts and
    other models don't have for themselves.

    Args:
        options: Of the job.
        profile: The chosen one.
        gpus: Number of GPUs of this machine.
        environment: Environment variables.
        config: Composed, without these overrides.

    Raises:
        SetupError: Several machines are asked for, but no Ray cluster is named; or more GPUs than there are here.
    """
    here = environment.get("GPUS_PER_NODE") or gpus  # none: a dry run for another machine keeps what the yaml says
    sizes = [f"trainer.n_gpus_per_node={here}"] if here else []
    if options.stage in TORCHRUN and profile != "laptop":
        return [f"trainer.nnodes={environment.get('NNODES') or 1}", *sizes]
    if profile in ON_TOYWORLD or not gpus or on_ray_cluster(options.stage, environment) or options.submit:
        return []
    if profile != "cluster":
        return _beside_others(config, gpus, [], options.overrides)
    nodes = environment.get("NNODES") or "1"
    if nodes != "1" and not options.dry_run:
        raise SetupError(
            f"NNODES={nodes}, but RAY_ADDRESS names no Ray cluster: start Ray on each machine (docs/cluster.md) and "
            "set RAY_ADDRESS, or unset NNODES"
        )
    sizes = [f"trainer.nnodes={nodes}", *sizes]
    return _beside_others(config, gpus, sizes, options.overrides) if nodes == "1" else sizes


def _beside_others(config: DictConfig, gpus: int, sizes: list[str], overrides: Sequence[str]) -> list[str]:
    """Sizes with which a trainer leaves GPUs of this machine to those that want some for themselves.

    verl would find out that rollouts have none when the trainer's model is up."""
    config = with_counts(config, sizes, overrides)
    beside, trainer = gpus_beside(config), config.trainer
    if sum(beside.values()) <= 0:
        return sizes
    left, share = gpus - sum(beside.values()), trainer.n_gpus_per_node
    if sizes and "trainer.n_gpus_per_node" not in _named(overrides):
        share = max(1, min(share, left))
        sizes = [*sizes[:1], f"trainer.n_gpus_per_node={share}"]
    if trainer.nnodes * share > left:
        raise SetupError(
            f"this machine has {gpus} GPU(s); {asked_in_all(trainer.nnodes, share, beside)}: ask for fewer, or set "
            "RAY_ADDRESS to a Ray cluster that has them"
        )
    return sizes


def stage_command(
    options: LaunchOptions, profile: Profile, environment: Mapping[str, str], config: DictConfig, sizes: Sequence[str]
) -> list[str]:
    """The command that trains, without what depends on the run's folder and without the user's overrides.

    Args:
        options: Whose overrides may name the folder of checkpoints.
        profile: The chosen one.
        environment: Environment variables; ``MASTER_ADDR`` and ``NODE_RANK`` say where several machines meet.
        config: See :func:`checked_config`.
        sizes: Likewise.

    Raises:
        SetupError: A torchrun over several machines isn't told where they meet.
    """
    name = config_name(options.stage, profile)
    named = ["--config-dir", str(options.recipe / "config"), "--config-name", name]
    if options.stage not in TORCHRUN:
        return [sys.executable, "-m", "verl.trainer.main_ppo", *named, *changes(profile), *sizes]
    trainer = config.trainer
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={trainer.n_gpus_per_node}"]
    command += ["--standalone"] if trainer.nnodes == 1 else _meeting(config, options, environment)
    return [*command, "-m", TORCHRUN[options.stage], *named, *sizes]


def _meeting(config: DictConfig, options: LaunchOptions, environment: Mapping[str, str]) -> list[str]:
    """How a torchrun over several machines finds the others."""
    machines = config.trainer.nnodes
    if missing := [name for name in ("MASTER_ADDR", "NODE_RANK") if not environment.get(name)]:
        raise SetupError(
            f"{machines} machines, but {' and '.join(missing)} not set: run the same command on each, with "
            "MASTER_ADDR (the first one's address) and NODE_RANK (0, 1, ...)"
        )
    rank = environment["NODE_RANK"]
    if not rank.isdecimal() or int(rank) >= machines:
        raise SetupError(
            f"NODE_RANK={rank}: must be from 0 to {machines - 1}, another on each of the {machines} machines"
        )
    if not checkpoints_folder(options.overrides, config):
        raise SetupError("several machines need one folder for checkpoints: trainer.default_local_dir=/shared/...")
    return [
        f"--nnodes={machines}",
        f"--node-rank={rank}",
        f"--master-addr={environment['MASTER_ADDR']}",
        f"--master-port={environment.get('MASTER_PORT') or 29500}",
    ]


def machine_of(stage: Stage, config: DictConfig, environment: Mapping[str, str]) -> int:
    """Which of the machines this is that run the same command, from 0 on: a torchrun's over several of them.

    Each has a run's folder of its own; the first one's has the metrics.
    """
    return int(environment["NODE_RANK"]) if stage in TORCHRUN and config.trainer.nnodes > 1 else 0


def world_size(config: DictConfig, profile: Profile) -> str:
    """Machines and GPUs of a run, e.g. ``2x8``, to which its checkpoints belong; empty for the laptop's one process."""
    return "" if profile == "laptop" else f"{config.trainer.nnodes}x{config.trainer.n_gpus_per_node}"


def folder_overrides(stage: Stage, folder: Path) -> list[str]:
    """Where a run's outputs go: into its folder."""
    parts = {"hydra.run.dir": "hydra", "trainer.default_local_dir": "checkpoints"}
    if stage == "grpo":
        parts["agentic_video.episodes_dir"] = "episodes"
    return [f"{key}={quoted(folder / name)}" for key, name in parts.items()]


def checkpoints_folder(overrides: Sequence[str], config: DictConfig) -> str:
    """Where the user wants the checkpoints; empty for the run's folder.

    Args:
        overrides: The user's.
        config: Composed with them.
    """
    return str(config.trainer.default_local_dir or "") if "trainer.default_local_dir" in _named(overrides) else ""


def ray_overrides(address: str, variables: Mapping[str, str], temporary: Path) -> list[str]:
    """How verl reaches Ray: a cluster that is there, or one of its own in the temporary folder.

    Args:
        address: Of the cluster; empty for one of its own.
        variables: Those that the processes on a cluster get.
        temporary: The job's temporary folder.
    """
    if address:
        handed = f"+ray_kwargs.ray_init.runtime_env.env_vars={quoted(dict(variables))}"
        sizes = ["ray_kwargs.ray_init.num_cpus=null", "++ray_kwargs.ray_init.num_gpus=null"]
        return [*sizes, "+ray_kwargs.ray_init.ignore_reinit_error=True", handed]
    return [f"+{RAY_FOLDER}={quoted(temporary / 'ray')}"]


def worker_overrides(nodes: int, cpus: float, overrides: Sequence[str]) -> list[str]:
    """How many workers play episodes, score them and hold batches: they follow the size of the machines.

    A worker is one event loop, and makes what the model sees of its episodes.

    Args:
        nodes: Number of machines.
        cpus: CPUs of the smallest of them.
        overrides: Of the user; a count that they name is kept.
    """
    counts = {
        "actor_rollout_ref.rollout.agent.num_workers": min(32, max(2, int(cpus) // 2)),
        "reward.num_workers": min(8, max(1, int(cpus) // 8)),
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 4,
    }
    named = _named(overrides)
    return [f"{key}={nodes * count}" for key, count in counts.items() if key not in named]


def scorer_overrides(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """A reward worker where agent-loop workers would score their episodes themselves by the user's own code.

    That may take long, and all episodes of the worker would wait; and it may change the rows that it is handed, which
    the other rollouts of a question share there.

    Args:
        config: Composed with the overrides.
        overrides: Of the user; a count that they name is kept.
    """
    own = (
        bool(config.agentic_video.reward.path)
        or not str(config.agentic_video.system._target_).startswith(PACKAGE)
        or config.reward.reward_manager.source != "register"
    )
    return (
        ["reward.num_workers=1"]
        if own and config.reward.num_workers == 0 and "reward.num_workers" not in _named(overrides)
        else []
    )


def with_workers(config: DictConfig, nodes: int, cpus: float, overrides: Sequence[str]) -> DictConfig:
    """A cluster's config with the counts of :func:`worker_overrides`, as verl gets it."""
    return with_counts(config, worker_overrides(nodes, cpus, overrides), overrides)


def with_counts(config: DictConfig, counts: Sequence[str], overrides: Sequence[str]) -> DictConfig:
    """A config as verl gets it where overrides that are counts stand before the user's, which win.

    Args:
        config: Composed with the user's overrides.
        counts: Overrides such as ``trainer.nnodes=2``.
        overrides: The user's.
    """
    config, named = config.copy(), _named(overrides)
    for text in counts:
        key, _, count = text.partition("=")
        if key not in named:
            OmegaConf.update(config, key, int(count))
    return config


def _named(overrides: Sequence[str]) -> set[str]:
    """The keys that overrides name."""
    return {one.key_or_group for one in parse_overrides(overrides)}
