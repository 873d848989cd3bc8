"""A run's config as plain numbers, so that formulas need no config."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agentic_video.config.features import TRAINER_MODES
from agentic_video.config.typed import dataclass_from
from agentic_video.families.base import ProcessorRules
from agentic_video.planning.memory import BF16, FP32, Head, Precision, profiled_tokens
from agentic_video.planning.published_checkpoints import checkpoint_rules
from agentic_video.planning.rates import Codec
from agentic_video.planning.shapes import ModelShape, shape_of
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.units import GIB
from agentic_video.video.store_config import StoreConfig

ACTOR, MODEL, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
FSDP = f"{ACTOR}.fsdp_config"
FSDP_SIZE = f"{FSDP}.fsdp_size"
REFERENCE_FSDP_SIZE = "actor_rollout_ref.ref.fsdp_config.fsdp_size"
BLOCK = "agentic_video.plan"
BYPASS = "algorithm.rollout_correction.bypass_mode"
PICTURE_CACHE = f"{ROLLOUT}.engine_kwargs.vllm.mm_processor_cache_gb"
PICTURES = f"{ROLLOUT}.engine_kwargs.vllm.limit_mm_per_prompt"
PICTURE_CACHE_GIB = 4
"""vLLM's default (``vllm/config/multimodal.py``)."""
WEIGHTS = {"fp32": FP32, "float32": FP32, "bf16": BF16, "bfloat16": BF16, "fp16": BF16, "float16": BF16}
LABEL_TOKENS = 12
"""Tokens of a frame besides its visual ones: its time stamp and marks (assumed)."""
CPUS_OF_A_GPU = 8
"""Processors of a node per GPU (assumed)."""
GPUS_OF_A_NODE = 8
"""GPUs of a node, unless a config says less."""
COUNTS = (
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
    "data.train_batch_size",
    "data.max_prompt_length",
    "data.max_response_length",
    f"{ACTOR}.ppo_mini_batch_size",
    f"{ACTOR}.ppo_epochs",
    f"{ACTOR}.ulysses_sequence_parallel_size",
    f"{ROLLOUT}.n",
    f"{ROLLOUT}.tensor_model_parallel_size",
    f"{ROLLOUT}.data_parallel_size",
    f"{ROLLOUT}.pipeline_model_parallel_size",
    f"{ROLLOUT}.max_num_seqs",
    f"{ROLLOUT}.max_num_batched_tokens",
    f"{ROLLOUT}.agent.num_workers",
    f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes",
)
"""Keys that must be at least 1, whatever the trainer."""


@dataclass(frozen=True)
class Episode:
    """Assumptions about a typical episode (``agentic_video.plan``), for the plan alone.

    Attributes:
        model: Published model of the plan if no folder is named.
        frames: Those of calls included.
        text_tokens: Tokens that aren't visual: prompt, question, generated text, tool replies.
        said_tokens: The generated ones among these.
        source_height: Lines of the videos' pictures.
        searched_frames: Frames of a video that a group's searches by text compare.
    """

    model: str
    overview_frames: int
    frames: int
    width: int
    height: int
    text_tokens: int = 3000
    said_tokens: int = 1000
    turns: int = 3
    source_height: int = 720
    source_codec: Codec = "h264"
    searched_frames: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.overview_frames <= self.frames:
            raise ValueError(f"overview_frames must be from 0 to frames, got {self.overview_frames} of {self.frames}")
        if min(self.frames, self.width, self.height, self.said_tokens, self.turns, self.source_height) < 1:
            raise ValueError("frames, width, height, said_tokens, turns and source_height must be at least 1")
        if self.said_tokens > self.text_tokens:
            raise ValueError(f"said_tokens are among text_tokens, got {self.said_tokens} of {self.text_tokens}")


@dataclass(frozen=True)
class Machines:
    """GPUs (in all, and per node), memory of each, and main memory of each node."""

    gpus: int
    gpu_bytes: float
    host_bytes: float
    per_node: int = GPUS_OF_A_NODE

    @property
    def nodes(self) -> int:
        """Number of machines."""
        return math.ceil(self.gpus / self.per_node)


@dataclass(frozen=True)
class Sizes:
    """Numbers of a run that must go together, whatever its memory.

    Attributes:
        gpus: GPUs of the trainer.
        ulysses: GPUs that share a sequence.
        micro_tokens: Tokens of a micro-batch on one GPU, by key, where micro-batches are filled by tokens.
        tensor: GPUs of an engine.
        data: Data-parallel engines of a server.
        heads: Attention heads of the model; 0 if unknown.
        fsdp_size: -1 for all.
        playing: More GPUs that only play episodes.
    """

    gpus: int
    ulysses: int
    micro_tokens: Mapping[str, int]
    longest: int
    tensor: int
    data: int
    questions: int
    mini_batch: int
    rollouts: int
    heads: int = 0
    fsdp_size: int = -1
    playing: int = 0


@dataclass(frozen=True)
class Key:
    """Config key of a field of :class:`RunSpec`; without a default it must be set."""

    name: str
    default: Any = None


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """A run in numbers: those with a :class:`Key` as they are configured.

    Attributes:
        sizes: Those of these numbers that must go together, as configured.
        micro_tokens: Tokens of a micro-batch on one GPU.
        micro_batch: Sequences of a micro-batch; 0 if it is filled by tokens.
        longest: Tokens of the longest sequence.
        scores: The trainer computes old log-probabilities (not in verl's bypass mode).
        use_kl: The loss or the reward has a KL term, and so a reference.
        retriever: Model that compares frames with texts; empty for none.
        profiled: Visual tokens with which engines measure their encoder.
        model_len: Longest sequence of an engine.
        sleeps: Engines free their memory while the model trains.
        adapters_served: Engines get LoRA adapters next to the weights, not merged weights.
        bucket_bytes: Bytes of weights handed to an engine at a time.
        picture_cache: Bytes of processed pictures that each engine keeps.
        store_bytes: Bytes of frames in each node's store.
        decode_bytes: Most bytes of its decoders.
        decoders: Decoding threads of each node.
        clips: Frames are shown as video: two of them cost as many tokens and patches as one image.
        pool: GPUs that only play episodes (``separate_async``), if any.
        ahead: Batches played ahead of the trained one.
        copies: Copies of the weights in main memory for old log-probabilities (``separate_async``).
    """

    shape: ModelShape
    rules: ProcessorRules
    machines: Machines
    episode: Episode
    sizes: Sizes
    precision: Precision
    head: Head

    prompt: Annotated[int, Key("data.max_prompt_length")]
    questions: Annotated[int, Key("data.train_batch_size")]
    rollouts: Annotated[int, Key(f"{ROLLOUT}.n")]
    surplus: Annotated[bool, Key("algorithm.filter_groups.enable")]

    checkpointed: Annotated[bool, Key(f"{MODEL}.enable_gradient_checkpointing")]
    mini_batch: Annotated[int, Key(f"{ACTOR}.ppo_mini_batch_size")]
    epochs: Annotated[int, Key(f"{ACTOR}.ppo_epochs")]
    ulysses: Annotated[int, Key(f"{ACTOR}.ulysses_sequence_parallel_size")]
    deferred: Annotated[bool, Key(f"{FSDP}.use_no_sync_for_gradient_accumulation")]
    """Gradients stay unsharded until a mini-batch's last micro-batch."""
    streamed: Annotated[bool, Key(f"{FSDP}.offload_policy")]
    """Weights, gradients and optimizer live in main memory; layers come as they run."""
    param_offload: Annotated[bool, Key(f"{FSDP}.param_offload")]
    optimizer_offload: Annotated[bool, Key(f"{FSDP}.optimizer_offload")]
    fsdp_size: Annotated[int, Key(FSDP_SIZE)]
    reference_fsdp_size: Annotated[int, Key(REFERENCE_FSDP_SIZE)]

    tensor_parallel: Annotated[int, Key(f"{ROLLOUT}.tensor_model_parallel_size")]
    data_parallel: Annotated[int, Key(f"{ROLLOUT}.data_parallel_size")]
    utilization: Annotated[float, Key(f"{ROLLOUT}.gpu_memory_utilization")]
    sequences: Annotated[int, Key(f"{ROLLOUT}.max_num_seqs")]
    batched_tokens: Annotated[int, Key(f"{ROLLOUT}.max_num_batched_tokens")]
    eager: Annotated[bool, Key(f"{ROLLOUT}.enforce_eager")]
    prefix_cached: Annotated[bool, Key(f"{ROLLOUT}.enable_prefix_caching", True)]
    workers: Annotated[int, Key(f"{ROLLOUT}.agent.num_workers")]

    micro_tokens: int
    micro_batch: int
    longest: int
    scores: bool
    use_kl: bool
    retriever: str
    profiled: int
    model_len: int
    sleeps: bool
    adapters_served: bool
    bucket_bytes: int
    picture_cache: int
    store_bytes: int
    decode_bytes: int
    decoders: int
    clips: bool
    pool: Machines | None
    ahead: float
    copies: int

    @property
    def reference(self) -> bool:
        """True if a reference model has weights of its own (not with LoRA)."""
        return self.use_kl and not self.precision.lora_rank

    @property
    def passes(self) -> int:
        """Passes of the trainer over a step's sequences."""
        return self.scores + self.use_kl + self.epochs

    @property
    def shards(self) -> int:
        """GPUs that share the trained model."""
        return shards_of(self.fsdp_size, self.machines.gpus)

    @property
    def reference_shards(self) -> int:
        """GPUs that share the reference model."""
        return shards_of(self.reference_fsdp_size, self.machines.gpus)

    @property
    def players(self) -> Machines:
        """Machines whose engines play a step's episodes."""
        return self.pool or self.machines

    @property
    def nodes(self) -> int:
        """Machines of the trainer and of rollouts."""
        return self.machines.nodes + (self.pool.nodes if self.pool else 0)

    @property
    def engines(self) -> int:
        """vLLM engines that play a step's episodes."""
        return max(1, self.players.gpus // self.tensor_parallel)

    @property
    def servers(self) -> int:
        """vLLM servers, each of which processes the pictures of its engines."""
        return max(1, self.engines // self.data_parallel)

    @property
    def accumulates(self) -> bool:
        """True if an update has several sequences per rank, so that gradients of others exist already."""
        return self.mini_batch * self.rollouts > max(1, self.machines.gpus // self.ulysses)

    @property
    def clip_frames(self) -> int:
        """Frames of the first clip; 0 for images."""
        return max(2, self.episode.overview_frames) if self.clips else 0

    @property
    def frame_size(self) -> tuple[int, int]:
        """(width, height) of shown frames: the nearest size that the model's processor keeps."""
        return self.rules.kept(self.episode.width, self.episode.height, self.clip_frames)

    @property
    def frame_tokens(self) -> int:
        """Visual tokens of a frame; two frames of a clip share theirs."""
        return max(1, self.rules.tokens(*self.frame_size, self.clip_frames) // max(1, self.clip_frames))

    @property
    def frame_patches(self) -> int:
        """Patches of a frame."""
        return self.frame_tokens * self.shape.vision.merge**2

    @property
    def typical(self) -> int:
        """Tokens of a typical episode, at most the longest sequence."""
        return min(self.longest, self.episode.text_tokens + self.episode.frames * (self.frame_tokens + LABEL_TOKENS))

    @property
    def visual_share(self) -> float:
        """Share of a typical episode's tokens that are visual."""
        shown = self.episode.frames * self.frame_tokens
        return shown / (shown + self.episode.frames * LABEL_TOKENS + self.episode.text_tokens)

    @property
    def episodes(self) -> int:
        """Episodes of a step."""
        return self.questions * self.rollouts

    @property
    def running(self) -> int:
        """Most episodes under way at a time: a step's, and those played ahead."""
        return math.ceil(self.episodes * (1 + self.ahead))

    @property
    def trains_vision(self) -> bool:
        """True if the vision tower gets gradients."""
        return not (self.precision.frozen_vision or self.precision.lora_rank)


def shards_of(fsdp_size: int, gpus: int) -> int:
    """GPUs that share a model's weights: verl makes groups of ``fsdp_size``, each with all of them; one group if the
    size is negative or not below the number of GPUs (``workers/engine/fsdp/utils.py:47``)."""
    return fsdp_size if 0 < fsdp_size < gpus else gpus


def check_counts(config: DictConfig) -> None:
    """Check the numbers that a plan needs."""
    read = _ConfigReader(config)
    for key in COUNTS:
        read.count(key)
    if bool(read(f"{ACTOR}.use_dynamic_bsz")):
        read.count(f"{ACTOR}.ppo_max_token_len_per_gpu")
    else:
        read.count_or(f"{ACTOR}.ppo_micro_batch_size_per_gpu", 1)
    read.count_or(f"{ROLLOUT}.max_model_len", 1)
    read.count(f"{MODEL}.lora_rank", 0)
    for key in (FSDP_SIZE, REFERENCE_FSDP_SIZE):
        if not read.count(key, -math.inf):
            raise SetupError(f"{key}: must be a number of GPUs, or -1 for all, got 0")
    if read.number(PICTURE_CACHE, PICTURE_CACHE_GIB) < 0:
        raise SetupError(f"{PICTURE_CACHE}: must be at least 0, got {read.get(PICTURE_CACHE)}")
    check_share(config)


def check_share(config: DictConfig) -> None:
    """Check the share of a GPU that engines may take."""
    share = _ConfigReader(config).number(f"{ROLLOUT}.gpu_memory_utilization", 0)
    if not 0 < share <= 1:
        raise SetupError(f"{ROLLOUT}.gpu_memory_utilization: must be above 0 and at most 1, got {share:g}")


def gpus_beside(config: DictConfig) -> dict[str, int]:
    """GPUs of a GRPO run besides the trainer's, by the config block that asks for them."""
    blocks = {
        ROLLOUT: config.trainer.v1.trainer_mode == TRAINER_MODES["separate_async"],
        "reward.reward_model": OmegaConf.select(config, "reward.reward_model.enable_resource_pool"),
        "distillation": OmegaConf.select(config, "distillation.enabled"),
    }
    asked = {name: OmegaConf.select(config, name) for name, used in blocks.items() if used}
    return {name: (block.nnodes or 0) * (block.n_gpus_per_node or 0) for name, block in asked.items()}


def gpus_of(config: DictConfig, in_all: int | None) -> tuple[int, int]:
    """(GPUs of the trainer, GPUs that only play episodes) of a run, which has the config's number or ``in_all``."""
    read = _ConfigReader(config)
    trainer = read.count("trainer.nnodes") * read.count("trainer.n_gpus_per_node")
    if read("trainer.v1.trainer_mode") == TRAINER_MODES["separate_async"]:
        for key in (f"{ROLLOUT}.nnodes", f"{ROLLOUT}.n_gpus_per_node"):
            read.count(key)
    pool = gpus_beside(config).get(ROLLOUT, 0)
    if in_all is None:
        return trainer, pool
    if in_all <= pool:
        raise SetupError(
            f"{in_all} GPUs: {ROLLOUT}.nnodes and .n_gpus_per_node take {pool} for episodes alone, which leaves none "
            "for the trainer"
        )
    return in_all - pool, pool


def sizes_of(config: DictConfig, longest: int, *, heads: int = 0, gpus: int | None = None) -> Sizes:
    """The sizes of a GRPO run, whose trainer has the config's number of GPUs or ``gpus``."""
    part, trainer = config.actor_rollout_ref, config.trainer
    budgets = (
        (ACTOR, part.actor, "use_dynamic_bsz", "ppo_max_token_len_per_gpu"),
        (ROLLOUT, part.rollout, "log_prob_use_dynamic_bsz", "log_prob_max_token_len_per_gpu"),
        ("actor_rollout_ref.ref", part.ref, "log_prob_use_dynamic_bsz", "log_prob_max_token_len_per_gpu"),
    )
    return Sizes(
        gpus=trainer.nnodes * trainer.n_gpus_per_node if gpus is None else gpus,
        ulysses=part.actor.ulysses_sequence_parallel_size,
        # the update's value is listed once; others may follow it
        micro_tokens={
            f"{name}.{tokens}": block[tokens]
            for name, block, dynamic, tokens in budgets
            if block[dynamic]
            and (
                name == ACTOR or not part.actor.use_dynamic_bsz or block[tokens] != part.actor.ppo_max_token_len_per_gpu
            )
        },
        longest=longest,
        tensor=part.rollout.tensor_model_parallel_size,
        data=part.rollout.data_parallel_size,
        questions=config.data.train_batch_size,
        mini_batch=part.actor.ppo_mini_batch_size,
        rollouts=part.rollout.n,
        heads=heads,
        fsdp_size=part.actor.fsdp_config.fsdp_size,
        playing=gpus_beside(config).get(ROLLOUT, 0),
    )


def job_of(config: DictConfig, machines: Machines, model: str = "") -> RunSpec:
    """Read a GRPO run's config.

    Args:
        config: Unset environment variables are allowed where the plan doesn't need them.
        machines: Machines of the trainer. GPUs that only play episodes are the config's, of the same kind.
        model: Folder or name of the model; by default the config's folder if there is one, else the recipe's published
            model.
    """
    check_counts(config)
    read = _ConfigReader(config)
    episode = _episode(read)
    path = str(read.get(f"{MODEL}.path", ""))
    is_folder = bool(path) and (Path(path).expanduser() / "config.json").is_file()
    named = model or (path if is_folder else "") or episode.model
    shape = shape_of(named)
    pool = None
    if alone := gpus_of(config, None)[1]:
        pool = replace(machines, gpus=alone, per_node=min(alone, read.count(f"{ROLLOUT}.n_gpus_per_node")))
    configured = read.fields()
    sequence = configured["prompt"] + int(read("data.max_response_length"))
    model_len = int(read(f"{ROLLOUT}.max_model_len") or sequence)
    dynamic = bool(read(f"{ACTOR}.use_dynamic_bsz"))
    rank = int(read(f"{MODEL}.lora_rank"))
    micro = 0 if dynamic else int(read(f"{ACTOR}.ppo_micro_batch_size_per_gpu") or 1)
    full = math.ceil(micro * sequence / configured["ulysses"])
    lora = read.get(f"{MODEL}.lora", {}) or {}
    store = StoreConfig(
        read("agentic_video.frame_store.max_bytes"),
        workers=read("agentic_video.frame_store.workers"),
        decode_bytes=read("agentic_video.frame_store.decode_bytes"),
    )
    store_bytes, decoders = store.bounds(int(machines.host_bytes), CPUS_OF_A_GPU * machines.per_node)
    rules = checkpoint_rules(named, shape.family)
    if rules is None:
        raise SetupError(f"{named}: nothing is known of its processor's sizes")
    try:
        rules.kept(episode.width, episode.height)
    except ValueError as error:
        raise SetupError(f"{named}: {one_line(error)}") from error
    return RunSpec(
        shape=shape,
        rules=rules,
        machines=machines,
        episode=episode,
        sizes=sizes_of(config, sequence, heads=shape.text.heads, gpus=machines.gpus),
        precision=Precision(
            weight_bytes=WEIGHTS.get(str(read(f"{FSDP}.model_dtype")), FP32),
            lora_rank=rank,
            frozen_vision=bool(read.get(f"{ACTOR}.freeze_vision_tower", False)),
        ),
        head=Head(
            fused=bool(read(f"{MODEL}.use_fused_kernels")),
            entropy=float(read(f"{ACTOR}.entropy_coeff")) != 0 or bool(read.get(f"{ACTOR}.calculate_entropy", False)),
            compiled=bool(read(f"{FSDP}.use_torch_compile")),
            scaled=float(read(f"{ROLLOUT}.temperature")) != 1,
        ),
        micro_tokens=int(read(f"{ACTOR}.ppo_max_token_len_per_gpu")) if dynamic else full,
        micro_batch=micro,
        longest=sequence,
        scores=not read.get(BYPASS, False),
        use_kl=bool(read(f"{ACTOR}.use_kl_loss")) or bool(read("algorithm.use_kl_in_reward")),
        profiled=profiled_tokens(
            rules, configured["batched_tokens"], model_len, configured["sequences"], read.get(PICTURES, {})
        ),
        retriever=str(read.get("agentic_video.retrieval.model", "")),
        model_len=model_len,
        sleeps=bool(read(f"{ROLLOUT}.free_cache_engine")) and bool(read.get(f"{ROLLOUT}.enable_sleep_mode", True)),
        adapters_served=bool(rank) and not lora.get("merge", False),
        bucket_bytes=int(read(f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes")) << 20,
        picture_cache=int(float(read.get(PICTURE_CACHE, PICTURE_CACHE_GIB)) * GIB),
        store_bytes=store_bytes,
        decode_bytes=store.limits(store_bytes).memory or 0,
        decoders=decoders,
        clips=read.get("agentic_video.system.frames_as") == "video",
        pool=pool,
        ahead=_ahead(read),
        copies=_copies(read) if pool else 0,
        **configured,
    )


def _ahead(read: "_ConfigReader") -> float:
    """Batches that are played ahead of the trained one."""
    modes = {TRAINER_MODES[name]: name for name in ("colocate_async", "separate_async")}
    name = modes.get(str(read("trainer.v1.trainer_mode")))
    return max(0.0, read.number(f"trainer.v1.{name}.num_warmup_batches", 0)) if name else 0.0


def _copies(read: "_ConfigReader") -> int:
    """Copies of the weights that verl keeps in main memory with GPUs that only play (``trainer_separate_async.py``,
    ``_compute_old_log_prob``): of the first update since the last hand-over, and later the present ones."""
    if read.get(BYPASS, False):
        return 0
    return 2 if read.number("trainer.v1.separate_async.parameter_sync_step", 1) > 1 else 1


def _episode(read: "_ConfigReader") -> Episode:
    block = read.get(BLOCK)
    if block is None:
        raise SetupError(
            f"{BLOCK}: the config says nothing about a typical episode; set {BLOCK}.model, .overview_frames, .frames, "
            ".width and .height"
        )
    try:
        episode: Episode = dataclass_from(Episode, OmegaConf.to_container(block, resolve=True), BLOCK)
    except ValueError as error:
        raise SetupError(one_line(error)) from error
    return episode


class _ConfigReader:
    """Values of a config by their keys."""

    def __init__(self, config: DictConfig):
        self._config = config

    def get(self, key: str, default: Any = None) -> Any:
        """A value; the default if it is missing or an unset environment variable."""
        with suppress(OmegaConfBaseException):
            value = OmegaConf.select(self._config, key, default=default)
            return default if value is None else value
        return default

    def __call__(self, key: str) -> Any:
        """A value that the plan needs; None for null. SetupError if it is missing."""
        try:
            return OmegaConf.select(self._config, key, throw_on_missing=True)
        except OmegaConfBaseException as error:
            raise SetupError(f"{key}: {one_line(error)}") from error

    def fields(self) -> dict[str, Any]:
        """The fields of :class:`RunSpec` that have a key, each in its type."""
        found = {}
        for name, hint in get_type_hints(RunSpec, include_extras=True).items():
            if get_origin(hint) is Annotated:
                kind, key = get_args(hint)
                found[name] = kind(self(key.name) if key.default is None else self.get(key.name, key.default))
        return found

    def count(self, key: str, least: float = 1) -> int:
        """A whole number that the plan needs, at least ``least``."""
        value = self(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or value % 1:  # neither inf nor nan is whole
            raise SetupError(f"{key}: must be a whole number, got {value}")
        if value < least:
            raise SetupError(f"{key}: must be at least {least}, got {value}")
        return int(value)

    def count_or(self, key: str, default: int) -> int:
        """A whole number from 1 on; the default for null."""
        return default if self(key) is None else self.count(key)

    def number(self, key: str, default: float) -> float:
        """A number; the default if it is missing."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise SetupError(f"{key}: must be a number, got {value}")
        return float(value)
