"""Which of verl's own features a run can have with this package.

What isn't there would fail minutes after the start, or train on something else without saying so. Each check names the
key, and where in verl 0.9.1 the reason is.
"""

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from agentic_video.config.unread import check_unread
from agentic_video.rollout.chat_template import kwargs_of
from agentic_video.systems.base import System
from agentic_video.utils.errors import SetupError, did_you_mean

TRAINER_MODES = {
    "sync": "agentic_video",
    "colocate_async": "agentic_video_colocate_async",
    "separate_async": "agentic_video_separate_async",
}
"""verl's trainers, and the modes (``trainer.v1.trainer_mode``) under which they log episodes too."""

LOGGERS = (
    "console",
    "tensorboard",
    "file",
    "wandb",
    "swanlab",
    "mlflow",
    "clearml",
    "trackio",
    "vemlp_wandb",
    "rl_insight",
    "tracking",
)
"""What verl can log to; ``tracking`` is an old name of ``wandb``."""
ESTIMATORS = (
    "grpo",
    "grpo_passk",
    "grpo_vectorized",
    "gpg",
    "opo",
    "rloo",
    "rloo_vectorized",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
)
"""verl's own advantages."""
WITHOUT_THEIR_INPUTS = ("gae", "gdpo", "remax", "optimal_token_baseline", "tir_optimal_token_baseline")
"""Those that would have no inputs: no critic that reads references to pictures, no rewards by name, no greedy rollouts
in addition to the sampled ones, no sums of squared probabilities (``_compute_advantage`` in
verl/trainer/ppo/v1/trainer_base.py)."""
OF_SEQUENCES = frozenset(ESTIMATORS) - {"grpo", "reinforce_plus_plus"}
"""Those that compare all sequences of a group: ``grpo`` compares its rollouts by the last sequence of each
(``compute_advantage_for_multi_trajectories`` in verl/trainer/ppo/v1/utils.py), ``reinforce_plus_plus`` none."""
REGISTRY = "verl.trainer.ppo.core_algos"
"""verl's module of advantages: a recipe's code that registers one of its own has imported it by now. To import it only
to look would take a dry run ten times as long."""
RESUME_MODES = ("auto", "disable", "resume_path")
VIDEO_CHECKS = ("exists", "probe", "decode")

MAX_OVERSAMPLE = 8
"""Times the batch: what is beyond is a slip of the finger."""
ENGINES = ("vllm", "sglang")
STRATEGIES = ("fsdp2", "fsdp")
ROLLOUT = "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"

VERL_LOOPS = ("single_turn_agent", "tool_agent")
"""verl's own agent loops, which know nothing of a row's video."""
MANAGER = "agentic_video.training.loop.agent_loop_manager.VideoAgentLoopManager"

IN_THE_VISION_TOWER = "model.visual.blocks.0.attn.qkv"
"""A module that LoRA must leave alone, as Hugging Face names it in Qwen2.5-VL and Qwen3-VL."""

PROCESSOR_KEYS = frozenset(
    {
        "size",
        "min_pixels",
        "max_pixels",
        "patch_size",
        "temporal_patch_size",
        "merge_size",
        "do_resize",
        "resample",
        "do_rescale",
        "rescale_factor",
        "do_normalize",
        "image_mean",
        "image_std",
        "fps",
        "num_frames",
        "do_sample_frames",
        "images_kwargs",
        "videos_kwargs",
    }
)
"""Arguments of a processor by which one side would see other pictures than the other."""
PROCESSOR_ARGUMENTS = f"{ROLLOUT}.engine_kwargs.vllm.mm_processor_kwargs"

Get = Callable[[str], Any]


def check_verl_features(config: DictConfig) -> None:
    """Make sure that a run asks nothing of verl that isn't available here, before anything is built.

    Args:
        config: Of the run, composed; of a stage without rollouts (SFT, KTO) only what all stages have is checked.

    Raises:
        SetupError: It does; one line that names the key, and what to set.
    """

    def get(key: str) -> Any:
        return OmegaConf.select(config, key, throw_on_missing=False)

    of_grpo = (
        _estimator,
        _oversample,
        _filter_groups,
        _credit,
        _reward,
        _trainer,
        _engine,
        _processors,
        _actor,
        _lora,
        _separate_async,
        _blind,
    )
    kwargs_of(config.get("data"))
    of_all = (_loggers, _resume, _videos, _frozen_vision, _data_set)
    for checks in (*of_all, *(of_grpo if "actor_rollout_ref" in config else ())):
        for message in checks(get):
            raise SetupError(message)
    check_unread(config)


def check_sequences(config: DictConfig, system: System) -> None:
    """Make sure that the advantage is one for the sequences that a system's rollouts become.

    Raises:
        SetupError: It isn't; one line that names the key, and what to set.
    """
    key = "algorithm.adv_estimator"
    name = OmegaConf.select(config, key)
    by_turn = f"{system.name} has a sequence for each turn (agentic_video.system.context={system.context})"
    by_aside = "agentic_video.system.train_asides=True makes each aside a sequence of its own"
    for several, why in ((system.context != "all", by_turn), (system.train_asides, by_aside)):
        if several and name in OF_SEQUENCES:
            raise SetupError(f"{key}: {name} takes each sequence for a rollout, and {why}; set grpo")
    if name == "grpo_passk" and system.untrained_ends:
        raise SetupError(
            f"{key}: grpo_passk can't do without the rollouts that aren't trained on; set "
            "agentic_video.system.untrained_ends=[], or grpo"
        )


def _unknown(key: str, value: Any, known: Collection[str]) -> str:
    """The message about a word that isn't one of those that a key takes."""
    return f"{key}: {value}: {did_you_mean(str(value), known)}there are {', '.join(known)}"


def _loggers(get: Get) -> Iterator[str]:
    key = "trainer.logger"
    value = get(key)
    # verl/utils/tracking.py asserts that it knows them, once the engines are up
    if isinstance(value, str) and re.search(r"[\[\],\s]", value):
        names = re.findall(r"\w+", value)
        yield f"{key}: {value!r} is a text; write a list without quotes around it: '{key}=[{','.join(names)}]'"
    for name in value if isinstance(value, ListConfig) else [value]:
        if name is not None and name not in LOGGERS:
            yield _unknown(key, name, LOGGERS)


def _resume(get: Get) -> Iterator[str]:
    mode, path = get("trainer.resume_mode"), get("trainer.resume_from_path")
    if mode is not None and mode not in RESUME_MODES:
        yield _unknown("trainer.resume_mode", mode, RESUME_MODES)
    if mode != "resume_path":
        return
    # verl/trainer/ppo/v1/trainer_base.py, _load_checkpoint, takes the number from the path's end
    pattern = r"global_step_[0-9]+$" if get("actor_rollout_ref") is not None else r"global_step_[0-9]+"
    if not re.search(pattern, str(path)):
        given = "not set" if path is None else path
        yield (
            f"trainer.resume_from_path: {given}: trainer.resume_mode=resume_path needs a checkpoint's folder, "
            ".../global_step_N"
        )


def _videos(get: Get) -> Iterator[str]:
    check = get("data.check_videos")
    if check is not None and check not in VIDEO_CHECKS:
        yield _unknown("data.check_videos", check, VIDEO_CHECKS)


def _estimator(get: Get) -> Iterator[str]:
    key, own = "algorithm.adv_estimator", getattr(sys.modules.get(REGISTRY), "ADV_ESTIMATOR_REGISTRY", {})
    # modules that only verl's processes import may register others
    elsewhere = os.environ.get("VERL_USE_EXTERNAL_MODULES") or get(f"{MODEL}.external_lib")
    if (name := get(key)) is not None and not elsewhere and name not in {*ESTIMATORS, *WITHOUT_THEIR_INPUTS, *own}:
        yield _unknown(
            key, name, [*ESTIMATORS, *(other for other in own if other not in {*ESTIMATORS, *WITHOUT_THEIR_INPUTS})]
        )
    elif name in WITHOUT_THEIR_INPUTS:
        yield f"{key}: {name}: nothing here computes what it needs; there are {', '.join(ESTIMATORS)}"
    if get("critic.enable"):
        yield "critic.enable: there is no critic that sees pictures; set False"


def _oversample(get: Get) -> Iterator[str]:
    times = get("agentic_video.oversample")
    if times is None or times == 1:
        return
    if not isinstance(times, int | float) or not 1 < times <= MAX_OVERSAMPLE:
        yield f"agentic_video.oversample: must be from 1 to {MAX_OVERSAMPLE}, got {times}"
        return
    # Where groups aren't filtered, and in the asynchronous trainers, which play ahead anyway, nothing is played beyond
    # the batch: a recipe's number may stay.
    most = get("algorithm.filter_groups.max_num_gen_batches")
    played = get("algorithm.filter_groups.enable") and get("trainer.v1.trainer_mode") == TRAINER_MODES["sync"]
    if played and most and 1 < most < times:
        yield (
            f"agentic_video.oversample: {times} batches are more than a step may play "
            f"(algorithm.filter_groups.max_num_gen_batches={most})"
        )


def _filter_groups(get: Get) -> Iterator[str]:
    key = "algorithm.filter_groups.max_num_gen_batches"
    if get("algorithm.filter_groups.enable") and get(key) == 1:
        yield f"{key}: 1 leaves no batch to replace groups from; set 2 or more, 0 for no limit, or enable=False"


def _credit(get: Get) -> Iterator[str]:
    estimator = get("algorithm.adv_estimator")
    if get("agentic_video.credit") == "turn" and estimator not in (None, "grpo"):
        yield f"agentic_video.credit=turn: it is GRPO by turn; set algorithm.adv_estimator=grpo (it is {estimator})"
    correction = "algorithm.rollout_correction"
    if get(f"{correction}.bypass_mode"):
        # only verl's older trainers call apply_bypass_mode (verl/trainer/ppo/rollout_corr_helper.py)
        for part, plain in (("rollout_is", None), ("rollout_rs", None), ("loss_type", "ppo_clip")):
            if get(f"{correction}.{part}") not in (None, plain):
                yield f"{correction}.{part}: verl's trainer passes it over with {correction}.bypass_mode; unset one"
    key = f"{correction}.rollout_rs"
    if get("agentic_video.credit") == "turn" and "token" in str(get(key)):
        # verl/trainer/ppo/rollout_corr_helper.py takes them out of the mask whose runs are the turns
        yield f"{key}: {get(key)} leaves out tokens of a turn, and agentic_video.credit=turn needs all; set seq_..."


def _reward(get: Get) -> Iterator[str]:
    if get("reward.num_workers") == 0 and get("reward.reward_model.enable"):
        yield "reward.num_workers: 0 has agent-loop workers score, which reach no reward model; set 1 or more"
    if get("reward.reward_model.enable") and not get("reward.reward_model.enable_resource_pool"):
        # on the actor's GPUs it scores a batch when all is played (_compute_reward_colocate in
        # verl/trainer/ppo/v1/trainer_base.py), of which it gets the texts alone
        yield "reward.reward_model.enable_resource_pool: a reward model needs GPUs of its own here; set True"


def _trainer(get: Get) -> Iterator[str]:
    mode = get("trainer.v1.trainer_mode")
    if get("trainer.use_v1") is False:
        yield "trainer.use_v1: verl has no other trainer any more; leave it True"
    if mode in TRAINER_MODES:
        yield (
            f"trainer.v1.trainer_mode: {mode} is verl's own trainer, which logs nothing of episodes; "
            f"set {TRAINER_MODES[mode]}"
        )
    if mode not in TRAINER_MODES.values():
        yield _unknown("trainer.v1.trainer_mode", mode, list(TRAINER_MODES.values()))
    for key in ("async_training", "rollout.total_rollout_steps"):
        # verl/experimental/fully_async_policy: a program of its own with its own agent-loop manager and queue
        if get(key) is not None:
            yield (
                f"{key}: belongs to verl's fully asynchronous program, which doesn't use our agent-loop workers or "
                f"trainer; trainer.v1.trainer_mode={TRAINER_MODES['separate_async']} plays and trains at the same time"
            )
    if get("actor_rollout_ref.hybrid_engine") is False:
        # verl/trainer/ppo/v1/trainer_separate_async.py, _setup: logger.info(..., flush=True)
        yield (
            "actor_rollout_ref.hybrid_engine: on False verl's trainer with GPUs of its own for rollouts fails once its "
            "engines are up, and the others pass it over; leave it True"
        )
    if get("actor_rollout_ref.actor.checkpoint.async_save"):
        # verl/trainer/ppo/v1/trainer_base.py, _save_checkpoint: naming the newest one is left to Megatron's
        yield (
            "actor_rollout_ref.actor.checkpoint.async_save: FSDP's checkpoints are saved at once, and with it verl "
            "doesn't note them, so that a run can't resume from one; set False"
        )
    if get("trainer.default_hdfs_dir") is not None:
        # verl/utils/checkpoint/fsdp_checkpoint_manager.py: "hdfs_path: Unused"
        yield (
            "trainer.default_hdfs_dir: verl doesn't copy FSDP's checkpoints there; set trainer.default_local_dir to a "
            "folder on a shared or mounted disk, or copy finished global_step_N folders yourself"
        )


def _data_set(get: Get) -> Iterator[str]:
    key = "data.custom_cls.path"
    if get("data.custom_cls") is not None and not get(key):
        yield f"{key}: without it verl reads the rows with its own data set, which knows no videos; leave it as it is"


def _blind(get: Get) -> Iterator[str]:
    """Features of verl's that would give a model, or the trainer, an episode without its pictures."""
    if get("distillation.enabled"):
        # _compute_teacher_logprobs in verl/experimental/agent_loop/agent_loop.py sends multi_modal_data["images"]
        yield (
            "distillation.enabled: verl sends its teacher the tokens of an episode without the pictures; set False. "
            "A teacher's episodes can be trained on with SFT (agentic-video distill)"
        )
    for key, ours in (
        (f"{ROLLOUT}.agent.default_agent_loop", "video_agent"),
        (f"{ROLLOUT}.agent.agent_loop_manager_class", MANAGER),
    ):
        name = get(key)
        if key.endswith("loop") and name in VERL_LOOPS:
            yield f"{key}: {name} is verl's own, which shows a question without its video; set {ours}"
        if key.endswith("class") and (not name or str(name).startswith("verl.")):
            yield f"{key}: {name}: verl's own workers leave the pictures out of what is trained on; set {ours}"
    if get("skip.rollout_tq.enable"):
        # verl/utils/skip/rollout_skip.py saves the batch, where frames are references to a store of that run
        yield "skip.rollout_tq.enable: what verl would save of a rollout has no pictures, only references; set False"


def processor_problem(arguments: Any, key: str) -> str:
    """Return the problem with arguments for vLLM's processor, or verl's, that other processes don't get; empty where
    nothing is."""
    changed = sorted(PROCESSOR_KEYS & {str(name) for name in arguments or {}})
    if not changed:
        return ""
    return (
        f"{key}.{changed[0]}: rollouts, engine and trainer have the processor of the checkpoint's files, and pictures "
        "must be the same to all; leave it out, and write it into preprocessor_config.json (and "
        "video_preprocessor_config.json) of the checkpoint's folder"
    )


def _processors(get: Get) -> Iterator[str]:
    for key in (PROCESSOR_ARGUMENTS, "data.mm_processor_kwargs"):
        if problem := processor_problem(get(key), key):
            yield problem


def _engine(get: Get) -> Iterator[str]:
    name = get(f"{ROLLOUT}.name")
    if name not in ENGINES:
        yield f"{ROLLOUT}.name: {name} isn't supported, as stop texts differ; there are {', '.join(ENGINES)}"
    if name != "vllm" and get("trainer.device") == "cpu":
        yield f"{ROLLOUT}.name: {name} needs GPUs; on a CPU there is vllm"
    if name == "sglang" and get(f"{ROLLOUT}.skip_tokenizer_init"):
        yield f"{ROLLOUT}.skip_tokenizer_init: without a tokenizer SGLang finds no stop texts; set False"
    if name != "vllm" and get("agentic_video.system.frames_as") == "video":
        # verl/workers/rollout/llm_server.py: "SGLang cannot take raw frames"
        yield f"agentic_video.system.frames_as: video needs {ROLLOUT}.name=vllm, {name} takes no frames as video"
    limit = f"{ROLLOUT}.engine_kwargs.vllm.limit_mm_per_prompt"
    if get("agentic_video.system.frames_as") == "video" and get(limit) is not None and get(f"{limit}.video") == 0:
        yield f"{limit}.video: 0, but agentic_video.system.frames_as=video shows clips; set most clips of a prompt"
    if get(f"{ROLLOUT}.pipeline_model_parallel_size") != 1:
        # verl/workers/config/rollout.py: "not implemented pipeline_model_parallel_size > 1 yet"
        yield (
            f"{ROLLOUT}.pipeline_model_parallel_size: verl 0.9.1 has no engines of several stages; leave it 1, and set "
            "tensor_model_parallel_size"
        )
    if get(f"{ROLLOUT}.mode") != "async":
        yield f"{ROLLOUT}.mode: episodes need async, got {get(f'{ROLLOUT}.mode')}"
    if get(f"{ROLLOUT}.quantization") is not None:
        # verl/workers/rollout/vllm_rollout/vllm_async_server.py, _apply_quantization: hf_config.num_hidden_layers,
        # which models with a vision tower have in their text_config only
        yield (
            f"{ROLLOUT}.quantization: verl 0.9.1 can't quantize models with a vision tower while it trains them; "
            "leave it null"
        )
    if name == "vllm" and get(f"{ROLLOUT}.disaggregation.enabled"):
        # verl/workers/rollout/replica.py, get_rollout_replica_class: a replica of its own, which takes images only
        yield f"{ROLLOUT}.disaggregation.enabled: these servers don't take references to images; leave it False"
    if get(f"{ROLLOUT}.full_determinism"):
        yield (
            f"{ROLLOUT}.full_determinism: can't be kept: frames and answers of graders arrive in no fixed order; "
            "leave it False"
        )


def _actor(get: Get) -> Iterator[str]:
    for role in ("actor", "ref"):
        key = f"actor_rollout_ref.{role}.strategy"
        if get(key) not in STRATEGIES:
            yield f"{key}: {get(key)} isn't supported: our patches are for FSDP; set fsdp2"
    if get("trainer.device") == "cpu" and get("actor_rollout_ref.actor.strategy") != "fsdp2":
        yield "actor_rollout_ref.actor.strategy: FSDP1 needs a GPU; set fsdp2"


def _frozen_vision(get: Get) -> Iterator[str]:
    """FSDP1 makes one weight of many, those of the vision tower's ends and of the language model among them."""
    for strategy, frozen in (
        ("actor_rollout_ref.actor.strategy", "actor_rollout_ref.actor.freeze_vision_tower"),
        ("engine.strategy", "trainer.freeze_vision_tower"),
    ):
        if get(strategy) == "fsdp" and get(frozen):
            yield f"{strategy}: fsdp can't leave a part of a model as it is ({frozen}); set fsdp2"


def _lora(get: Get) -> Iterator[str]:
    if get(f"{MODEL}.lora.rank"):
        # verl/workers/engine/fsdp/transformer_impl.py reads lora_rank, vllm_async_server.py either
        yield f"{MODEL}.lora.rank: is Megatron's; set {MODEL}.lora_rank and {MODEL}.lora_alpha"
    if not _has_lora(get):
        return
    left_out = get(f"{MODEL}.exclude_modules")
    pattern = left_out if isinstance(left_out, str) else ""
    try:
        spared = bool(re.fullmatch(pattern, IN_THE_VISION_TOWER))
    except re.error as error:
        yield f"{MODEL}.exclude_modules: {pattern}: no regular expression ({error})"
        return
    if not spared and get(f"{MODEL}.target_modules") == "all-linear":
        yield (
            f"{MODEL}.exclude_modules: LoRA would put adapters into the vision tower, which vLLM doesn't apply; "
            f"set '.*visual.*', or name {MODEL}.target_modules"
        )


def _has_lora(get: Get) -> bool:
    return bool(get(f"{MODEL}.lora_rank")) or get(f"{MODEL}.lora_adapter_path") is not None


def _separate_async(get: Get) -> Iterator[str]:
    """What ``PPOTrainerSeparateAsync`` asserts, which would be heard only when the cluster is up; and LoRA."""
    if get("trainer.v1.trainer_mode") != TRAINER_MODES["separate_async"]:
        return
    for key in (f"{ROLLOUT}.nnodes", f"{ROLLOUT}.n_gpus_per_node"):
        if not get(key):
            yield f"{key}: of the GPUs that only play episodes; must be at least 1, got {get(key)}"
    if get(f"{ROLLOUT}.checkpoint_engine.backend") == "naive":
        yield f"{ROLLOUT}.checkpoint_engine.backend: naive can't send weights to other GPUs; set nccl"
    if _has_lora(get) and not get(f"{MODEL}.lora.merge"):
        # verl/workers/engine_workers.py, update_weights: base_sync_done is left at False, so that what is sent is the
        # base model's weights
        yield (
            f"{MODEL}.lora.merge: verl sends no adapters to other GPUs, so that their engines would play with the base "
            "model throughout; set True, or train without LoRA"
        )
    keys = "trainer.v1.separate_async.parameter_sync_step", "actor_rollout_ref.actor.ppo_mini_batch_size"
    for key in keys:
        if not isinstance(get(key), int) or get(key) < 1:
            yield f"{key}: must be a whole number of at least 1, got {get(key)}"
    (steps, mini), batch = map(get, keys), get("data.train_batch_size")
    if batch != steps * mini:
        yield f"data.train_batch_size: must be {' * '.join(keys)} = {steps} * {mini} = {steps * mini}, got {batch}"
