"""What of verl's can't be had is said in one line, by its key; what the recipes set can be."""

from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from agentic_video.config.features import (
    ESTIMATORS,
    LOGGERS,
    MANAGER,
    VERL_LOOPS,
    WITHOUT_THEIR_INPUTS,
    check_sequences,
    check_verl_features,
)
from agentic_video.config.settings import settings_of
from agentic_video.utils.errors import SetupError
from tests.config.configs import PROFILES, SYSTEMS, composed, set_environment

ROLLOUT, MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"
LORA = f"{MODEL}.lora_rank=8"
SEPARATE = "trainer.v1.trainer_mode=agentic_video_separate_async"
OWN_GPUS = [
    SEPARATE,
    f"{ROLLOUT}.nnodes=1",
    f"{ROLLOUT}.n_gpus_per_node=8",
    f"{ROLLOUT}.checkpoint_engine.backend=nccl",
]
"""Rollouts on GPUs of their own."""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_recipes_can_be_had(system: str, profile: str) -> None:
    check_verl_features(composed(system, profile, "data.train_files=none"))


@pytest.mark.parametrize(
    "overrides",
    [
        [LORA],
        [LORA, f"{MODEL}.exclude_modules=null", f"{MODEL}.target_modules=[q_proj,v_proj]"],
        [f"{MODEL}.exclude_modules=null"],
        [f"{ROLLOUT}.name=sglang"],
        ["agentic_video.system.frames_as=video"],
        ["actor_rollout_ref.actor.strategy=fsdp"],
        ["trainer.logger=console"],
        [f"+{ROLLOUT}.engine_kwargs.vllm.mm_processor_kwargs={{use_fast: true}}"],
        ["trainer.logger=[console,wandb,tracking]"],
        ["trainer.resume_mode=resume_path", "trainer.resume_from_path=/runs/checkpoints/global_step_20"],
        ["algorithm.adv_estimator=rloo"],
        ["algorithm.adv_estimator=mine", f"{MODEL}.external_lib=mine"],
        ["data.check_videos=probe"],
        ["trainer.v1.trainer_mode=agentic_video_colocate_async"],
        OWN_GPUS,
        [*OWN_GPUS, LORA, f"{MODEL}.lora.merge=True"],
        [*OWN_GPUS, "actor_rollout_ref.actor.fsdp_config.param_offload=True"],
    ],
)
def test_what_can_be_had(overrides: list[str]) -> None:
    check_verl_features(composed("videozoomer", "cluster", *overrides))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["agentic_video.system.frames_as=video", f"{ROLLOUT}.name=sglang"],
            r"^agentic_video\.system\.frames_as: video needs .*name=vllm, sglang takes",
        ),
        (
            ["agentic_video.system.frames_as=video", f"{ROLLOUT}.engine_kwargs.vllm.limit_mm_per_prompt.video=0"],
            r"limit_mm_per_prompt\.video: 0, but agentic_video\.system\.frames_as=video",
        ),
        (
            [f"+{ROLLOUT}.engine_kwargs.vllm.mm_processor_kwargs={{min_pixels: 784, max_pixels: 50176}}"],
            r"mm_processor_kwargs\.max_pixels: .*preprocessor_config\.json",
        ),
        (
            [f"+{ROLLOUT}.engine_kwargs.vllm.mm_processor_kwargs.size={{shortest_edge: 784, longest_edge: 50176}}"],
            r"mm_processor_kwargs\.size: ",
        ),
        (["+data.mm_processor_kwargs.max_pixels=50176"], r"^data\.mm_processor_kwargs\.max_pixels: "),
        (["trainer.v1.trainer_mode=sync"], r"^trainer\.v1\.trainer_mode: sync is verl's own .*; set agentic_video$"),
        (["trainer.v1.trainer_mode=agentic_vidoe"], r"agentic_vidoe: did you mean agentic_video\? there are"),
        (
            ["trainer.logger=[console,wandbb]"],
            r"^trainer\.logger: wandbb: did you mean wandb\? there are console, tensorboard, ",
        ),
        (["trainer.logger=tensorbord"], r"^trainer\.logger: tensorbord: did you mean tensorboard\?"),
        (
            ["trainer.logger='[console, wandb]'"],
            r"is a text; write a list without quotes around it: 'trainer\.logger=\[console,wandb\]'$",
        ),
        (["algorithm.adv_estimator=grpoo"], r"^algorithm\.adv_estimator: grpoo: did you mean grpo\? there are grpo, "),
        (
            ["data.check_videos=prob"],
            r"^data\.check_videos: prob: did you mean probe\? there are exists, probe, decode$",
        ),
        (["trainer.resume_mode=yes"], r"^trainer\.resume_mode: (yes|True): there are auto, disable, resume_path$"),
        (["trainer.resume_mode=resume_path"], r"^trainer\.resume_from_path: not set: .* needs a checkpoint's folder"),
        (
            ["trainer.resume_mode=resume_path", "trainer.resume_from_path=/runs/checkpoints"],
            r"^trainer\.resume_from_path: /runs/checkpoints: .* \.\.\./global_step_N$",
        ),
        (["trainer.use_v1=False"], r"^trainer\.use_v1: "),
        (["+async_training.partial_rollout=True"], r"^async_training: belongs to verl's fully asynchronous program"),
        (["trainer.default_hdfs_dir=hdfs://x/y"], r"^trainer\.default_hdfs_dir: .* set trainer\.default_local_dir"),
        ([f"{ROLLOUT}.name=trtllm"], r"rollout\.name: trtllm isn't supported.* there are vllm, sglang$"),
        (
            [f"{ROLLOUT}.name=sglang", f"{ROLLOUT}.skip_tokenizer_init=True"],
            r"skip_tokenizer_init: .*set False",
        ),
        (
            [f"{ROLLOUT}.pipeline_model_parallel_size=2"],
            r"pipeline_model_parallel_size: verl .* no engines of several stages; leave it 1",
        ),
        ([f"{ROLLOUT}.mode=sync"], r"rollout\.mode: episodes need async, got sync$"),
        ([f"{ROLLOUT}.quantization=fp8"], r"rollout\.quantization: .*leave it null$"),
        ([f"{ROLLOUT}.full_determinism=True"], r"rollout\.full_determinism: "),
        ([f"{ROLLOUT}.disaggregation.enabled=True"], r"rollout\.disaggregation\.enabled: "),
        (
            ["actor_rollout_ref.actor.strategy=fsdp", "actor_rollout_ref.actor.freeze_vision_tower=True"],
            r"^actor_rollout_ref\.actor\.strategy: fsdp can't leave a part .*freeze_vision_tower\); set fsdp2$",
        ),
        (["algorithm.adv_estimator=gae"], r"^algorithm\.adv_estimator: gae: nothing here computes what it needs; "),
        (["critic.enable=True"], r"^critic\.enable: .*; set False$"),
        (
            ["algorithm.rollout_correction.bypass_mode=True", "algorithm.rollout_correction.rollout_is=token"],
            r"^algorithm\.rollout_correction\.rollout_is: verl's trainer passes it over with .*bypass_mode; unset one$",
        ),
        (
            ["algorithm.adv_estimator=remax"],
            r"^algorithm\.adv_estimator: remax: nothing here computes what it needs; ",
        ),
        (["actor_rollout_ref.actor.strategy=megatron"], r"^actor_rollout_ref\.actor\.strategy: megatron .* set fsdp2$"),
        (["actor_rollout_ref.ref.strategy=veomni"], r"^actor_rollout_ref\.ref\.strategy: veomni"),
        ([f"{MODEL}.lora.rank=8"], r"model\.lora\.rank: is Megatron's; set actor_rollout_ref\.model\.lora_rank"),
        ([LORA, f"{MODEL}.exclude_modules=null"], r"model\.exclude_modules: .*vision tower.* set '\.\*visual\.\*'"),
        ([LORA, f"{MODEL}.exclude_modules=lm_head"], r"model\.exclude_modules: .*vision tower"),
        ([LORA, f"{MODEL}.exclude_modules='(visual'"], r"model\.exclude_modules: \(visual: no regular expression"),
        ([SEPARATE], r"rollout\.nnodes: .*at least 1, got 0$"),
        (
            [SEPARATE, f"{ROLLOUT}.nnodes=1", f"{ROLLOUT}.n_gpus_per_node=8"],
            r"checkpoint_engine\.backend: naive .* set nccl$",
        ),
        ([*OWN_GPUS, LORA], r"^actor_rollout_ref\.model\.lora\.merge: .*base model throughout; set True"),
        (["reward.reward_model.enable=True"], r"^reward\.reward_model\.enable_resource_pool: .*; set True$"),
        (
            ["agentic_video.credit=turn", "algorithm.rollout_correction.rollout_rs='seq_max_k2,token_k1'"],
            r"^algorithm\.rollout_correction\.rollout_rs: seq_max_k2,token_k1 leaves out tokens .*; set seq_\.\.\.$",
        ),
        (
            ["actor_rollout_ref.actor.checkpoint.async_save=True"],
            r"^actor_rollout_ref\.actor\.checkpoint\.async_save: ",
        ),
        (["reward.num_workers=0", "reward.reward_model.enable=True"], r"^reward\.num_workers: 0 .*; set 1 or more$"),
        (["actor_rollout_ref.hybrid_engine=False"], r"^actor_rollout_ref\.hybrid_engine: .*; leave it True$"),
        (
            [*OWN_GPUS, "trainer.v1.separate_async.parameter_sync_step=null"],
            r"^trainer\.v1\.separate_async\.parameter_sync_step: must be a whole number of at least 1, got None$",
        ),
        (["distillation.enabled=True"], r"^distillation\.enabled: .*without the pictures; set False"),
        (
            ["distillation.enabled=True", "distillation.nnodes=1", "distillation.n_gpus_per_node=8"],
            r"^distillation\.enabled: ",
        ),
        *(
            ([f"{ROLLOUT}.agent.default_agent_loop={name}"], r"agent\.default_agent_loop: .* set video_agent$")
            for name in ("tool_agent", "single_turn_agent")
        ),
        ([f"{ROLLOUT}.agent.agent_loop_manager_class=null"], r"agent\.agent_loop_manager_class: .*; set agentic_video"),
        (
            [f"{ROLLOUT}.agent.agent_loop_manager_class=verl.trainer.ppo.v1.agent_loop_tq.AgentLoopManagerTQ"],
            r"agent\.agent_loop_manager_class: .*; set agentic_video",
        ),
        (["skip.rollout_tq.enable=True"], r"^skip\.rollout_tq\.enable: .*; set False$"),
        (["data.custom_cls.path=null"], r"^data\.custom_cls\.path: "),
        (
            [*OWN_GPUS, "data.train_batch_size=100"],
            r"^data\.train_batch_size: .* = 4 \* 32 = 128, got 100$",
        ),
    ],
)
def test_what_can_not(overrides: list[str], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        check_verl_features(composed("videozoomer", "cluster", *overrides))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (f"{ROLLOUT}.name=sglang", "needs GPUs"),
        ("actor_rollout_ref.actor.strategy=fsdp", "FSDP1 needs a GPU; set fsdp2"),
    ],
)
def test_what_needs_a_gpu(override: str, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        check_verl_features(composed("videozoomer", "laptop", "data.train_files=none", override))


@pytest.mark.parametrize(
    ("system", "override", "message"),
    [
        (
            "framemind",
            "",
            r"^algorithm\.adv_estimator: rloo takes each sequence .*context=latest_evidence\); set grpo$",
        ),
        ("paravt", "agentic_video.system.train_asides=True", r"rloo takes each .* makes each aside .*; set grpo$"),
    ],
)
def test_an_advantage_of_sequences_where_a_rollout_is_several(system: str, override: str, message: str) -> None:
    config = composed(system, "cluster", "algorithm.adv_estimator=rloo", *filter(None, [override]))
    with pytest.raises(SetupError, match=message):
        check_sequences(config, settings_of(config).system)
    config.algorithm.adv_estimator = "grpo"
    check_sequences(config, settings_of(config).system)


def test_what_pass_at_k_is_not_for() -> None:
    config = composed("videoo3", "cluster", "algorithm.adv_estimator=grpo_passk")
    with pytest.raises(SetupError, match=r"grpo_passk can't do without .* set agentic_video\.system\.untrained_ends="):
        check_sequences(config, settings_of(config).system)
    config.agentic_video.system.untrained_ends = []
    check_sequences(config, settings_of(config).system)


def test_fsdp_1_freezes_no_part_of_a_model_in_sft_either() -> None:
    fsdp = composed("videozoomer", "sft", "data.train_files=none", "engine.strategy=fsdp")
    with pytest.raises(
        SetupError, match=r"^engine\.strategy: fsdp can't .*\(trainer\.freeze_vision_tower\); set fsdp2$"
    ):
        check_verl_features(fsdp)


@pytest.mark.parametrize("profile", ["laptop", "cluster"])
def test_a_teacher_without_pictures_is_refused_in_every_profile(profile: str) -> None:
    """As verl would be told it: the key alone, and with GPUs of the teacher's own."""
    for overrides in (["distillation.enabled=True"], ["distillation.enabled=True", "distillation.nnodes=1"]):
        with pytest.raises(SetupError, match=r"^distillation\.enabled: "):
            check_verl_features(composed("videozoomer", profile, "data.train_files=none", *overrides))


def test_verl_s_own_words_for_agent_loops_are_known() -> None:
    import verl.experimental.agent_loop.single_turn_agent_loop
    import verl.experimental.agent_loop.tool_agent_loop  # noqa: F401
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    from agentic_video.training.loop import agent_loop, agent_loop_manager

    loops = {name for name, made in _agent_loop_registry.items() if made["_target_"].startswith("verl.")}
    assert set(VERL_LOOPS) == loops and agent_loop.AGENT_NAME in _agent_loop_registry
    manager = agent_loop_manager.VideoAgentLoopManager
    assert f"{manager.__module__}.{manager.__qualname__}" == MANAGER


def test_sft_reads_records_with_our_data_set_alone() -> None:
    with pytest.raises(SetupError, match=r"^data\.custom_cls\.path: "):
        check_verl_features(composed("videozoomer", "sft", "data.train_files=none", "data.custom_cls.path=null"))


def test_stages_without_rollouts_are_left_alone() -> None:
    check_verl_features(OmegaConf.create({"trainer": {"default_hdfs_dir": "hdfs://x"}}))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("trainer.logger=[console,wandbb]", r"^trainer\.logger: wandbb: did you mean wandb\?"),
        ("data.check_videos=prob", r"^data\.check_videos: prob: did you mean probe\?"),
        ("trainer.resume_mode=resume_path", r"^trainer\.resume_from_path: not set"),
    ],
)
def test_words_that_all_stages_read(override: str, said: str) -> None:
    check_verl_features(composed("videozoomer", "sft_laptop", "data.train_files=none"))
    with pytest.raises(SetupError, match=said):
        check_verl_features(composed("videozoomer", "sft_laptop", "data.train_files=none", override))


@pytest.mark.parametrize("name", sorted({*ESTIMATORS, *WITHOUT_THEIR_INPUTS} - {"gae"}))
def test_the_trainer_has_the_inputs_of_the_advantages_that_there_are(name: str) -> None:
    """With what verl's trainer selects from a batch; ``gae`` would have a critic's values besides."""
    import torch
    from tensordict import TensorDict
    from verl.protocol import DataProto
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    fields = ("token_level_scores", "token_level_rewards", "rm_scores", "old_log_probs", "rollout_log_probs")
    batch = TensorDict({item: torch.rand(4, 3) for item in fields}, batch_size=[4])
    batch["response_mask"] = torch.ones(4, 3, dtype=torch.long)
    data = DataProto(batch=batch, non_tensor_batch={"uid": np.array(list("aabb"), dtype=object)})
    config = OmegaConf.create({"norm_adv_by_std_in_grpo": True, "gamma": 1.0, "use_pf_ppo": False})

    def advantages() -> Any:
        keys = [f"{uid}_{number}_0" for uid in "ab" for number in range(2)]
        return compute_advantage_for_multi_trajectories(data, keys, name, num_repeat=2, config=config)

    if name in ESTIMATORS:
        assert advantages().batch["advantages"].shape == (4, 3)
    else:
        with pytest.raises((TypeError, AssertionError)):
            advantages()


def test_the_words_are_verl_s() -> None:
    from verl.trainer.ppo.core_algos import AdvantageEstimator
    from verl.utils.tracking import Tracking

    assert {*ESTIMATORS, *WITHOUT_THEIR_INPUTS} == {item.value for item in AdvantageEstimator}
    assert set(LOGGERS) == {*Tracking.supported_backend, "tracking"}


def test_a_custom_advantage_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.trainer.ppo import core_algos

    config = composed("videozoomer", "cluster", "algorithm.adv_estimator=mine")
    with pytest.raises(SetupError, match=r"^algorithm\.adv_estimator: mine: there are"):
        check_verl_features(config)
    monkeypatch.setitem(core_algos.ADV_ESTIMATOR_REGISTRY, "mine", print)
    check_verl_features(config)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["agentic_video.oversample=0.5"], "from 1 to 8, got 0.5"),
        (["agentic_video.oversample=2.5"], "2.5 batches are more than a step may play .*max_num_gen_batches=2"),
    ],
)
def test_oversampling_has_bounds(overrides: list[str], said: str) -> None:
    with pytest.raises(SetupError, match=f"agentic_video.oversample: .*{said}"):
        check_verl_features(composed("videozoomer", "laptop", *overrides))


@pytest.mark.parametrize(
    "override",
    [
        "algorithm.filter_groups.max_num_gen_batches=0",
        "algorithm.filter_groups.enable=False",
        "trainer.v1.trainer_mode=agentic_video_colocate_async",
    ],
)
def test_a_recipe_s_oversampling_may_stay_where_nothing_is_oversampled(override: str) -> None:
    check_verl_features(composed("videozoomer", "laptop", "agentic_video.oversample=2.5", override))


def test_dynamic_sampling_needs_a_batch_to_replace_groups_from() -> None:
    one = "algorithm.filter_groups.max_num_gen_batches=1"
    with pytest.raises(SetupError, match=r"max_num_gen_batches: 1 leaves no batch .* enable=False"):
        check_verl_features(composed("videozoomer", "laptop", one))
    for others in ([one, "algorithm.filter_groups.enable=False"], [one.replace("=1", "=0")], []):
        check_verl_features(composed("videozoomer", "laptop", *others))
