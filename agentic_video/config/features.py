"""verl's features that a run can't have with this package, as a table: key, values that are refused, reason, remedy.

Each would fail minutes after the start, or train on something else without a word. Comments name places in verl 0.9.1.
"""

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from agentic_video.config.unread import check_unread
from agentic_video.families.base import ModelFamily
from agentic_video.families.registry import FAMILIES, family_in
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
    *("console", "tensorboard", "file", "wandb", "swanlab", "mlflow", "clearml", "trackio", "vemlp_wandb"),
    *("rl_insight", "tracking"),
)
"""verl's loggers; ``tracking`` is an old name of ``wandb``."""
ESTIMATORS = (
    *("grpo", "grpo_passk", "grpo_vectorized", "gpg", "opo", "rloo", "rloo_vectorized", "reinforce_plus_plus"),
    "reinforce_plus_plus_baseline",
)
"""verl's own advantages."""
WITHOUT_THEIR_INPUTS = ("gae", "gdpo", "remax", "optimal_token_baseline", "tir_optimal_token_baseline")
"""Advantages without inputs here: no critic that reads references to pictures, no rewards by name, no greedy rollouts
in addition to the sampled ones, no sums of squared probabilities (``_compute_advantage`` in
verl/trainer/ppo/v1/trainer_base.py)."""
LOSSES = (
    *("vanilla", "gspo", "cispo", "sapo", "geo_mean", "gpg", "clip_cov", "kl_cov", "dppo_tv", "dppo_kl", "dro"),
    "bypass_mode",
)
"""verl's losses (``actor.policy_loss.loss_mode``)."""
LOSS_MEANS = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
"""verl's means of a loss over tokens (``actor.loss_agg_mode``)."""
REGISTRY = "verl.trainer.ppo.core_algos"
"""verl's module of advantages and losses: a recipe's code that registers one of its own has imported it by now. To
import it only to look would take a dry run ten times as long."""
RESUME_MODES = ("auto", "disable", "resume_path")
VIDEO_CHECKS = ("exists", "probe", "decode")

MAX_OVERSAMPLE = 8
"""Most times the batch; more is a mistake."""
ENGINES = ("vllm", "sglang")
STRATEGIES = ("fsdp2", "fsdp")
ROLLOUT = "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"

VERL_LOOPS = ("single_turn_agent", "tool_agent")
"""verl's own agent loops, which don't know a row's video."""
REWARD_MANAGER = "pkg://agentic_video.training.loop.reward_manager"
MANAGER = "agentic_video.training.loop.agent_loop_manager.VideoAgentLoopManager"

PROCESSOR_KEYS = frozenset(
    (
        *(
            "size",
            "min_pixels",
            "max_pixels",
            "patch_size",
            "temporal_patch_size",
            "merge_size",
            "do_resize",
            "resample",
        ),
        *("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std", "fps", "num_frames"),
        *("do_sample_frames", "images_kwargs", "videos_kwargs"),
    )
)
"""Arguments of a processor by which one side would see other pictures than the other."""
PROCESSOR_ARGUMENTS = f"{ROLLOUT}.engine_kwargs.vllm.mm_processor_kwargs"

BLIND = "verl's fused forward drops the pictures of"
"""What a family is refused with that has no fused forward of its own."""

Get = Callable[[str], Any]
Refused = Callable[[Any], Any]


@dataclass(frozen=True)
class FeatureRule:
    """Refusal of values of a key.

    Attributes:
        refused: Whether a value is refused.
        reason: The reason, and the remedy; ``{value}`` is the key's value.
        when: Other keys, and whether their values let the rule count.
    """

    key: str
    refused: Refused
    reason: str
    when: Mapping[str, Refused] = field(default_factory=dict)


def _is(*values: Any) -> Refused:
    return lambda value: value in values


def _is_not(*values: Any) -> Refused:
    return lambda value: value not in values


def _is_set(value: Any) -> bool:
    return value is not None


def _is_no_count(value: Any) -> bool:
    return not isinstance(value, int) or value < 1


ACTOR = "actor_rollout_ref.actor"
CORRECTION = "algorithm.rollout_correction"
CLIPS = f"{ROLLOUT}.engine_kwargs.vllm.limit_mm_per_prompt"
FRAMES_AS = "agentic_video.system.frames_as"
GROUPS = "algorithm.filter_groups"
MODE = "trainer.v1.trainer_mode"
SYNC_STEP = "trainer.v1.separate_async.parameter_sync_step"
MINI_BATCH = f"{ACTOR}.ppo_mini_batch_size"
OF_TURNS: tuple[tuple[str, Refused], ...] = (
    ("agentic_video.credit", _is("turn", "state")),
    ("agentic_video.turn_entropy", bool),
)
"""Keys by which the turns of a rollout have advantages of their own."""
BY_TURN = dict(OF_TURNS[:1])
LOSS = f"{ACTOR}.policy_loss.loss_mode"
BYPASS: Mapping[str, Refused] = {f"{CORRECTION}.bypass_mode": bool}
SEPARATE = {MODE: _is(TRAINER_MODES["separate_async"])}
IN_BYPASS = f"verl's trainer passes it over with {CORRECTION}.bypass_mode; unset one"
ASYNCHRONOUS = (
    "belongs to verl's fully asynchronous program, which doesn't use our agent-loop workers or trainer; "
    f"{MODE}={TRAINER_MODES['separate_async']} plays and trains at the same time"
)
WHOLE = "FSDP1 can't leave a part of a model as it is ({0}); set fsdp2"
COUNT = "must be a whole number of at least 1, got {value}"
Rule = FeatureRule

# FSDP1 makes one weight of many, those of the vision tower's ends and of the language model among them
RULES_OF_ALL = tuple(
    Rule(key, _is("fsdp"), WHOLE.format(frozen), {frozen: bool})
    for key, frozen in (
        (f"{ACTOR}.strategy", f"{ACTOR}.freeze_vision_tower"),
        ("engine.strategy", "trainer.freeze_vision_tower"),
    )
)
"""Refusals in every stage."""

RULES_OF_GRPO = (
    Rule("critic.enable", bool, "there is no critic that sees pictures; set False"),
    Rule(
        f"{GROUPS}.max_num_gen_batches",
        _is(1),
        "1 leaves no batch to replace groups from; set 2 or more, 0 for no limit, or enable=False",
        {f"{GROUPS}.enable": bool},
    ),
    Rule(
        "algorithm.adv_estimator",
        _is_not(None, "grpo"),
        "agentic_video.credit is GRPO's by turn; set grpo (it is {value}), or credit=trajectory",
        BY_TURN,
    ),
    # only verl's older trainers call apply_bypass_mode (verl/trainer/ppo/rollout_corr_helper.py)
    Rule(f"{CORRECTION}.rollout_is", _is_set, IN_BYPASS, BYPASS),
    Rule(f"{CORRECTION}.rollout_rs", _is_set, IN_BYPASS, BYPASS),
    Rule(f"{CORRECTION}.loss_type", _is_not(None, "ppo_clip"), IN_BYPASS, BYPASS),
    *(
        rule
        for key, counts in OF_TURNS
        for rule in (
            # verl/trainer/ppo/rollout_corr_helper.py takes them out of the mask whose runs are the turns
            Rule(
                f"{CORRECTION}.rollout_rs",
                lambda value: "token" in str(value),
                f"{{value}} leaves out tokens of a turn, and {key} needs all; set seq_...",
                {key: counts},
            ),
            # compute_policy_loss_geo_mean in verl/trainer/ppo/core_algos.py
            Rule(
                LOSS,
                _is("geo_mean"),
                f"geo_mean takes the mean of a sequence's advantages, and {key} tells its turns apart; unset one",
                {key: counts},
            ),
        )
    ),
    Rule(
        "agentic_video.turn_entropy",
        bool,
        f"with {CORRECTION}.bypass_mode nothing computes the entropy of what was played; unset one",
        BYPASS,
    ),
    # compute_policy_loss_dro raises it at the first update
    Rule(
        f"{ACTOR}.policy_loss.dro_beta",
        lambda value: not value or value <= 0,
        "must be above 0 with loss_mode=dro, got {value}",
        {LOSS: _is("dro")},
    ),
    Rule(
        "reward.num_workers",
        _is(0),
        "0 has agent-loop workers score, which reach no reward model; set 1 or more",
        {"reward.reward_model.enable": bool},
    ),
    # on the actor's GPUs it scores a batch when all is played (_compute_reward_colocate in
    # verl/trainer/ppo/v1/trainer_base.py), of which it gets the texts alone
    Rule(
        "reward.reward_model.enable_resource_pool",
        lambda value: not value,
        "a reward model needs GPUs of its own here; set True",
        {"reward.reward_model.enable": bool},
    ),
    *(
        Rule(MODE, _is(mode), f"{mode} is verl's own trainer, which logs nothing of episodes; set {ours}")
        for mode, ours in TRAINER_MODES.items()
    ),
    # verl/experimental/fully_async_policy: a program of its own with its own agent-loop manager and queue
    Rule("async_training", _is_set, ASYNCHRONOUS),
    # verl/trainer/ppo/v1/trainer_separate_async.py, _setup: logger.info(..., flush=True)
    Rule(
        "actor_rollout_ref.hybrid_engine",
        _is(False),
        "on False verl's trainer with GPUs of its own for rollouts fails once its engines are up, and the others pass "
        "it over; leave it True",
    ),
    # verl/trainer/ppo/v1/trainer_base.py, _save_checkpoint: naming the newest one is left to Megatron's
    Rule(
        f"{ACTOR}.checkpoint.async_save",
        bool,
        "FSDP's checkpoints are saved at once, and with it verl doesn't note them, so that a run can't resume from "
        "one; set False",
    ),
    # verl/utils/checkpoint/fsdp_checkpoint_manager.py: "hdfs_path: Unused"
    Rule(
        "trainer.default_hdfs_dir",
        _is_set,
        "verl doesn't copy FSDP's checkpoints there; set trainer.default_local_dir to a folder on a shared or mounted "
        "disk, or copy finished global_step_N folders yourself",
    ),
    Rule(
        f"{ROLLOUT}.name",
        _is_not(*ENGINES),
        f"{{value}} isn't supported, as stop texts differ; there are {', '.join(ENGINES)}",
    ),
    Rule(
        f"{ROLLOUT}.name", _is_not("vllm"), "{value} needs GPUs; on a CPU there is vllm", {"trainer.device": _is("cpu")}
    ),
    Rule(
        f"{ROLLOUT}.skip_tokenizer_init",
        bool,
        "without a tokenizer SGLang finds no stop texts; set False",
        {f"{ROLLOUT}.name": _is("sglang")},
    ),
    # verl/workers/rollout/llm_server.py: "SGLang cannot take raw frames"
    Rule(FRAMES_AS, _is("video"), f"video needs {ROLLOUT}.name=vllm", {f"{ROLLOUT}.name": _is_not("vllm")}),
    Rule(
        f"{CLIPS}.video",
        _is(0),
        f"0, but {FRAMES_AS}=video shows clips; set most clips of a prompt",
        {FRAMES_AS: _is("video")},
    ),
    # verl/workers/rollout/vllm_rollout/vllm_async_server.py, _apply_quantization: hf_config.num_hidden_layers, which
    # models with a vision tower have in their text_config only
    Rule(
        f"{ROLLOUT}.quantization",
        _is_set,
        "verl 0.9.1 can't quantize models with a vision tower while it trains them; leave it null",
    ),
    # verl/workers/rollout/replica.py, get_rollout_replica_class: a replica of its own, which takes images only
    Rule(
        f"{ROLLOUT}.disaggregation.enabled",
        bool,
        "these servers don't take references to images; leave it False",
        {f"{ROLLOUT}.name": _is("vllm")},
    ),
    Rule(
        f"{ROLLOUT}.full_determinism",
        bool,
        "SGLang's servers take no seed of a request; set rollout.name=vllm",
        {f"{ROLLOUT}.name": _is("sglang")},
    ),
    *(
        Rule(key, _is_not(*STRATEGIES), "{value} isn't supported: our patches are for FSDP; set fsdp2")
        for key in (f"{ACTOR}.strategy", "actor_rollout_ref.ref.strategy")
    ),
    Rule(f"{ACTOR}.strategy", _is_not("fsdp2"), "FSDP1 needs a GPU; set fsdp2", {"trainer.device": _is("cpu")}),
    # verl/workers/engine/fsdp/transformer_impl.py reads lora_rank, vllm_async_server.py either
    Rule(f"{MODEL}.lora.rank", bool, f"is Megatron's; set {MODEL}.lora_rank and {MODEL}.lora_alpha"),
    # the next ones: PPOTrainerSeparateAsync asserts them, which would be heard only when the cluster is up
    *(
        Rule(
            key,
            lambda value: not value,
            "of the GPUs that only play episodes; must be at least 1, got {value}",
            SEPARATE,
        )
        for key in (f"{ROLLOUT}.nnodes", f"{ROLLOUT}.n_gpus_per_node")
    ),
    Rule(
        f"{ROLLOUT}.checkpoint_engine.backend",
        _is("naive"),
        "naive can't send weights to other GPUs; set nccl, or zmq without GPUs",
        SEPARATE,
    ),
    *(Rule(key, _is_no_count, COUNT, SEPARATE) for key in (SYNC_STEP, MINI_BATCH)),
    Rule(
        "reward.custom_reward_function.path",
        _is_not(None, REWARD_MANAGER),
        "{value} isn't asked about episodes; set agentic_video.reward.path and .name",
        {"reward.reward_manager.name": _is("video_agent")},
    ),
    # the next ones would give a model, or the trainer, an episode without its pictures.
    Rule(
        "distillation.enabled",
        bool,
        "a teacher is shown pictures by reference, which SGLang's servers don't take; set rollout.name=vllm",
        {f"{ROLLOUT}.name": _is("sglang")},
    ),
    Rule(
        "agentic_video.teacher_view",
        bool,
        "there is no teacher; set distillation.enabled=True",
        {"distillation.enabled": lambda value: not value},
    ),
    Rule(
        f"{ROLLOUT}.agent.default_agent_loop",
        _is(*VERL_LOOPS),
        "{value} is verl's own, which shows a question without its video; set video_agent",
    ),
    Rule(
        f"{ROLLOUT}.agent.agent_loop_manager_class",
        lambda value: str(value or "verl.").startswith("verl."),
        f"{{value}}: verl's own workers leave the pictures out of what is trained on; set {MANAGER}",
    ),
    # verl/utils/skip/rollout_skip.py saves the batch, where frames are references to a store of that run
    Rule("skip.rollout_tq.enable", bool, "verl would save rollouts without pictures, only with references; set False"),
)
"""Refusals where episodes are played."""


def check_verl_features(config: DictConfig) -> None:
    """Make sure that a run asks nothing of verl that isn't available here, before anything is built.

    Args:
        config: Of the run, composed; of a stage without rollouts (SFT, KTO) only what all stages have is checked.

    Raises:
        SetupError: One line that names the key, and the remedy.
    """

    def get(key: str) -> Any:
        return OmegaConf.select(config, key, throw_on_missing=False)

    plays = "actor_rollout_ref" in config
    kwargs_of(config.get("data"))
    _check_words(get, plays)
    _check_checkpoint(get)
    if get("data.custom_cls") is not None and not get("data.custom_cls.path"):
        raise _refusal(
            "data.custom_cls.path", "without it verl reads the rows with its own data set, which knows no videos"
        )
    if plays:
        _check_method(get)
        _check_oversampling(get)
        for key in (PROCESSOR_ARGUMENTS, "data.mm_processor_kwargs"):
            if problem := processor_problem(get(key), key):
                raise SetupError(problem, key=key)
    for rule in (*RULES_OF_ALL, *(RULES_OF_GRPO if plays else ())):
        if rule.refused(value := get(rule.key)) and all(counts(get(key)) for key, counts in rule.when.items()):
            raise _refusal(rule.key, rule.reason.replace("{value}", str(value)))
    if plays:
        _check_fused(get)
        _check_lora(get)
        _check_separate_batch(get)
    check_unread(config)


def check_groups(config: DictConfig, system: System) -> None:
    """Make sure that the advantage is one for a system's groups, of which untrained rollouts are no part."""
    key = "algorithm.adv_estimator"
    if OmegaConf.select(config, key) == "grpo_passk" and system.untrained_ends:
        raise _refusal(
            key,
            "grpo_passk needs the rollouts that aren't trained on; set agentic_video.system.untrained_ends=[], or grpo",
        )


def _refusal(key: str, reason: str) -> SetupError:
    return SetupError(f"{key}: {reason}", key=key)


def _unknown(key: str, value: Any, known: Collection[str]) -> SetupError:
    return _refusal(key, f"{value}: {did_you_mean(str(value), known)}there are {', '.join(known)}")


def _check_words(get: Get, plays: bool) -> None:
    key = "trainer.logger"
    value = get(key)
    # verl/utils/tracking.py asserts that it knows them, once the engines are up
    if isinstance(value, str) and re.search(r"[\[\],\s]", value):
        names = ",".join(re.findall(r"\w+", value))
        raise _refusal(key, f"{value!r} is a text; write a list without quotes around it: '{key}=[{names}]'")
    for name in value if isinstance(value, ListConfig) else [value]:
        if name is not None and name not in LOGGERS:
            raise _unknown(key, name, LOGGERS)
    words = {
        "trainer.resume_mode": RESUME_MODES,
        "data.check_videos": VIDEO_CHECKS,
        f"{ACTOR}.loss_agg_mode": LOSS_MEANS,
    }
    for key, known in words.items():
        if (word := get(key)) is not None and word not in known:
            raise _unknown(key, word, known)
    if plays and get(MODE) not in (*TRAINER_MODES, *TRAINER_MODES.values()):
        raise _unknown(MODE, get(MODE), list(TRAINER_MODES.values()))


def _check_checkpoint(get: Get) -> None:
    key = "trainer.resume_from_path"
    # verl/trainer/ppo/v1/trainer_base.py, _load_checkpoint, takes the number from the path's end
    pattern = r"global_step_[0-9]+$" if get("actor_rollout_ref") is not None else r"global_step_[0-9]+"
    if get("trainer.resume_mode") == "resume_path" and not re.search(pattern, str(get(key))):
        given = "not set" if get(key) is None else get(key)
        raise _refusal(key, f"{given}: trainer.resume_mode=resume_path needs a checkpoint's folder, .../global_step_N")


def _check_method(get: Get) -> None:
    """Make sure that there are the advantage and the loss."""
    advantage = "algorithm.adv_estimator"
    if (name := get(advantage)) in WITHOUT_THEIR_INPUTS:
        raise _refusal(advantage, f"{name}: nothing here computes what it needs; there are {', '.join(ESTIMATORS)}")
    # modules that only verl's processes import may register others
    elsewhere = os.environ.get("VERL_USE_EXTERNAL_MODULES") or get(f"{MODEL}.external_lib")
    for key, stock, registry in (
        (advantage, ESTIMATORS, "ADV_ESTIMATOR_REGISTRY"),
        (LOSS, LOSSES, "POLICY_LOSS_REGISTRY"),
    ):
        own = getattr(sys.modules.get(REGISTRY), registry, {})
        known = [*stock, *(name for name in own if name not in {*stock, *WITHOUT_THEIR_INPUTS})]
        if (name := get(key)) is not None and not elsewhere and name not in known:
            raise _unknown(key, name, known)


def _check_oversampling(get: Get) -> None:
    key = "agentic_video.oversample"
    times = get(key)
    if times is None:
        return
    if not isinstance(times, int | float) or not 1 <= times <= MAX_OVERSAMPLE:
        raise _refusal(key, f"must be from 1 to {MAX_OVERSAMPLE}, got {times}")
    # Where groups aren't filtered, and in the asynchronous trainers, which play ahead anyway, nothing is played beyond
    # the batch: a recipe's number may stay.
    most = get(f"{GROUPS}.max_num_gen_batches")
    if get(f"{GROUPS}.enable") and get(MODE) == TRAINER_MODES["sync"] and most and 1 < most < times:
        raise _refusal(key, f"{times} batches are more than a step may play ({GROUPS}.max_num_gen_batches={most})")


def _family(get: Get) -> ModelFamily | None:
    """Family of the model's folder, if it is known."""
    try:
        return family_in(Path(str(get(f"{MODEL}.path"))))
    except InterpolationResolutionError:  # a plan without MODEL_PATH
        return None


def _check_fused(get: Get) -> None:
    key, family = f"{MODEL}.use_fused_kernels", _family(get)
    if get(key) and family is not None and not family.fused:
        raise _refusal(key, f"{BLIND} {family.model_types[0]}; set False")


def _check_lora(get: Get) -> None:
    if not get(f"{MODEL}.lora_rank") and get(f"{MODEL}.lora_adapter_path") is None:
        return
    key = f"{MODEL}.exclude_modules"
    pattern = excluded if isinstance(excluded := get(key), str) else ""
    family = _family(get)
    try:
        spared = any(re.fullmatch(pattern, known.tower_layer) for known in ([family] if family else FAMILIES))
    except re.error as error:
        raise _refusal(key, f"{pattern}: no regular expression ({error})") from None
    if not spared and get(f"{MODEL}.target_modules") == "all-linear":
        raise _refusal(
            key,
            "LoRA would put adapters into the vision tower, which vLLM doesn't apply; set "
            "'.*(visual|vision|audio|projector).*', or name "
            f"{MODEL}.target_modules",
        )
    if get(MODE) == TRAINER_MODES["separate_async"] and not get(f"{MODEL}.lora.merge"):
        # verl/workers/engine_workers.py, update_weights: base_sync_done is left at False, so that what is sent is the
        # base model's weights
        raise _refusal(
            f"{MODEL}.lora.merge",
            "verl sends no adapters to other GPUs, whose engines would play with the base model throughout; set "
            "True, or train without LoRA",
        )


def _check_separate_batch(get: Get) -> None:
    key = "data.train_batch_size"
    if get(MODE) == TRAINER_MODES["separate_async"] and get(key) != (wanted := get(SYNC_STEP) * get(MINI_BATCH)):
        raise _refusal(key, f"must be {SYNC_STEP} * {MINI_BATCH} = {wanted}, got {get(key)}")


def processor_problem(arguments: Any, key: str) -> str:
    """Describe arguments of vLLM's processor, or verl's, that other processes don't get; empty where there are none."""
    changed = sorted(PROCESSOR_KEYS & {str(name) for name in arguments or {}})
    if not changed:
        return ""
    return (
        f"{key}.{changed[0]}: rollouts, engine and trainer have the processor of the checkpoint's files, and pictures "
        "must be the same to all; leave it out, and write it into preprocessor_config.json (and "
        "video_preprocessor_config.json) of the checkpoint's folder"
    )
