"""Features of verl that are refused, each by its key; the recipes' own pass."""

from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from agentic_video.config.features import (
    ESTIMATORS,
    LOGGERS,
    LOSS_MEANS,
    LOSSES,
    MANAGER,
    VERL_LOOPS,
    WITHOUT_THEIR_INPUTS,
    check_groups,
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
def test_the_recipes_pass(system: str, profile: str) -> None:
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
        ["actor_rollout_ref.actor.policy_loss.loss_mode=mine", f"{MODEL}.external_lib=mine"],
        ["agentic_video.turn_entropy=True", "algorithm.adv_estimator=rloo"],
        ["algorithm.adv_estimator=mine", f"{MODEL}.external_lib=mine"],
        ["data.check_videos=probe"],
        ["trainer.v1.trainer_mode=agentic_video_colocate_async"],
        OWN_GPUS,
        [*OWN_GPUS, LORA, f"{MODEL}.lora.merge=True"],
        [*OWN_GPUS, "actor_rollout_ref.actor.fsdp_config.param_offload=True"],
    ],
)
def test_supported_features_pass(overrides: list[str]) -> None:
    check_verl_features(composed("videozoomer", "cluster", *overrides))


CLUSTER, LAPTOP, SFT = ("videozoomer", "cluster"), ("videozoomer", "laptop"), ("videozoomer", "sft")
VIDEO = "agentic_video.system.frames_as=video"
PROCESSOR = f"{ROLLOUT}.engine_kwargs.vllm.mm_processor_kwargs"
STRATEGY = "actor_rollout_ref.actor.strategy"
CORRECTION = "algorithm.rollout_correction"
BATCHES = "algorithm.filter_groups.max_num_gen_batches"
RESUME = "trainer.resume_mode=resume_path"
LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"
REWARD_MODEL = "reward.reward_model.enable=True"


@pytest.mark.parametrize(
    ("recipe", "overrides", "key"),
    [
        # the last override's key is at fault, unless one is named
        *(
            (recipe, [override], "")
            for recipe, override in (
                (CLUSTER, "trainer.v1.trainer_mode=sync"),
                (CLUSTER, "trainer.v1.trainer_mode=agentic_vidoe"),
                (CLUSTER, "trainer.logger=[console,wandbb]"),
                (CLUSTER, "trainer.logger=tensorbord"),
                (CLUSTER, "trainer.logger='[console, wandb]'"),
                (CLUSTER, "algorithm.adv_estimator=grpoo"),
                (CLUSTER, "algorithm.adv_estimator=gae"),
                (CLUSTER, "algorithm.adv_estimator=remax"),
                (CLUSTER, f"{LOSS}=gsspo"),
                (CLUSTER, "actor_rollout_ref.actor.loss_agg_mode=token_mean"),
                (CLUSTER, "critic.enable=True"),
                (CLUSTER, "data.check_videos=prob"),
                (CLUSTER, "trainer.resume_mode=yes"),
                (CLUSTER, "trainer.default_hdfs_dir=hdfs://x/y"),
                (CLUSTER, f"{ROLLOUT}.name=trtllm"),
                (CLUSTER, f"{ROLLOUT}.quantization=fp8"),
                (CLUSTER, f"{ROLLOUT}.disaggregation.enabled=True"),
                (CLUSTER, f"{STRATEGY}=megatron"),
                (CLUSTER, "actor_rollout_ref.ref.strategy=veomni"),
                (CLUSTER, f"{MODEL}.lora.rank=8"),
                (CLUSTER, "actor_rollout_ref.actor.checkpoint.async_save=True"),
                (CLUSTER, "actor_rollout_ref.hybrid_engine=False"),
                (CLUSTER, f"{ROLLOUT}.agent.default_agent_loop=tool_agent"),
                (CLUSTER, f"{ROLLOUT}.agent.default_agent_loop=single_turn_agent"),
                (CLUSTER, f"{ROLLOUT}.agent.agent_loop_manager_class=null"),
                (CLUSTER, f"{ROLLOUT}.agent.agent_loop_manager_class=verl.trainer.ppo.v1.agent_loop_tq.Any"),
                (CLUSTER, "skip.rollout_tq.enable=True"),
                (CLUSTER, "data.custom_cls.path=null"),
                (LAPTOP, f"{ROLLOUT}.name=sglang"),
                (LAPTOP, f"{STRATEGY}=fsdp"),
                (LAPTOP, "agentic_video.oversample=0.5"),
                (LAPTOP, "agentic_video.oversample=2.5"),
                (LAPTOP, f"{BATCHES}=1"),
                (SFT, "engine.strategy=fsdp"),
                (SFT, "data.custom_cls.path=null"),
                (SFT, "trainer.logger=[console,wandbb]"),
                (SFT, "data.check_videos=prob"),
            )
        ),
        *((CLUSTER, [LORA, f"{MODEL}.exclude_modules={value}"], "") for value in ("null", "lm_head", "'(visual'")),
        (CLUSTER, [f"{ROLLOUT}.name=sglang", VIDEO], ""),
        (CLUSTER, [f"{ROLLOUT}.name=sglang", f"{ROLLOUT}.skip_tokenizer_init=False", "distillation.enabled=True"], ""),
        (CLUSTER, [f"{ROLLOUT}.name=sglang", f"{ROLLOUT}.full_determinism=True"], ""),
        (LAPTOP, ["agentic_video.teacher_view={overview_max_frames: 6}"], "agentic_video.teacher_view"),
        (CLUSTER, [VIDEO, f"{ROLLOUT}.engine_kwargs.vllm.limit_mm_per_prompt.video=0"], ""),
        (CLUSTER, ["+data.mm_processor_kwargs.max_pixels=50176"], "data.mm_processor_kwargs"),
        (CLUSTER, [f"+{PROCESSOR}={{min_pixels: 784, max_pixels: 50176}}"], PROCESSOR),
        (CLUSTER, [f"+{PROCESSOR}.size={{shortest_edge: 784, longest_edge: 50176}}"], PROCESSOR),
        (SFT, [RESUME], "trainer.resume_from_path"),
        (CLUSTER, [RESUME], "trainer.resume_from_path"),
        (CLUSTER, [RESUME, "trainer.resume_from_path=/runs/checkpoints"], ""),
        (CLUSTER, ["+async_training.partial_rollout=True"], "async_training"),
        (CLUSTER, [f"{ROLLOUT}.name=sglang", f"{ROLLOUT}.skip_tokenizer_init=True"], ""),
        (CLUSTER, ["actor_rollout_ref.actor.freeze_vision_tower=True", f"{STRATEGY}=fsdp"], ""),
        (CLUSTER, [f"{CORRECTION}.bypass_mode=True", f"{CORRECTION}.rollout_is=token"], ""),
        (CLUSTER, ["agentic_video.credit=turn", f"{CORRECTION}.rollout_rs='seq_max_k2,token_k1'"], ""),
        (CLUSTER, ["agentic_video.turn_entropy=True", f"{CORRECTION}.rollout_rs=token_k1"], ""),
        *(
            (CLUSTER, [f"agentic_video.credit={kind}", other], "")
            for kind in ("turn", "state")
            for other in ("algorithm.adv_estimator=rloo", f"{LOSS}=geo_mean")
        ),
        (CLUSTER, ["agentic_video.turn_entropy=True", f"{LOSS}=geo_mean"], ""),
        (CLUSTER, [f"{CORRECTION}.bypass_mode=True", "agentic_video.turn_entropy=True"], ""),
        (CLUSTER, [f"{LOSS}=dro"], "actor_rollout_ref.actor.policy_loss.dro_beta"),
        (CLUSTER, [REWARD_MODEL], "reward.reward_model.enable_resource_pool"),
        (CLUSTER, [REWARD_MODEL, "reward.num_workers=0"], ""),
        (CLUSTER, [SEPARATE], f"{ROLLOUT}.nnodes"),
        (CLUSTER, OWN_GPUS[:-1], f"{ROLLOUT}.checkpoint_engine.backend"),
        (CLUSTER, [*OWN_GPUS, LORA], f"{MODEL}.lora.merge"),
        (CLUSTER, [*OWN_GPUS, "trainer.v1.separate_async.parameter_sync_step=null"], ""),
        (CLUSTER, [*OWN_GPUS, "data.train_batch_size=100"], ""),
    ],
)
def test_a_refusal_names_the_key(recipe: tuple[str, str], overrides: list[str], key: str) -> None:
    with pytest.raises(SetupError) as refused:
        check_verl_features(composed(*recipe, "data.train_files=none", *overrides))
    expected = key or overrides[-1].partition("=")[0].lstrip("+")
    assert (refused.value.key, "\n" in str(refused.value)) == (expected, False)


def test_the_best_of_a_group_needs_all_its_rollouts() -> None:
    config = composed("videoo3", "cluster", "algorithm.adv_estimator=grpo_passk")
    with pytest.raises(SetupError) as refused:
        check_groups(config, settings_of(config).system)
    assert refused.value.key == "algorithm.adv_estimator"
    config.algorithm.adv_estimator = "grpo"
    check_groups(config, settings_of(config).system)


def test_verl_s_own_words_for_agent_loops_are_known() -> None:
    import verl.experimental.agent_loop.single_turn_agent_loop
    import verl.experimental.agent_loop.tool_agent_loop  # noqa: F401
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    from agentic_video.training.loop import agent_loop, agent_loop_manager

    loops = {name for name, made in _agent_loop_registry.items() if made["_target_"].startswith("verl.")}
    assert set(VERL_LOOPS) == loops and agent_loop.AGENT_NAME in _agent_loop_registry
    manager = agent_loop_manager.VideoAgentLoopManager
    assert f"{manager.__module__}.{manager.__qualname__}" == MANAGER


def test_stages_without_rollouts_are_left_alone() -> None:
    check_verl_features(OmegaConf.create({"trainer": {"default_hdfs_dir": "hdfs://x"}}))


@pytest.mark.parametrize("name", sorted({*ESTIMATORS, *WITHOUT_THEIR_INPUTS} - {"gae"}))
def test_the_trainer_has_the_inputs_of_the_advantages_that_there_are(name: str) -> None:
    """With what verl's trainer selects from a batch; ``gae`` would have a critic's values besides."""
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
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, AdvantageEstimator, agg_loss
    from verl.utils.tracking import Tracking

    assert {*ESTIMATORS, *WITHOUT_THEIR_INPUTS} == {item.value for item in AdvantageEstimator}
    assert set(LOSSES) == {name for name, made in POLICY_LOSS_REGISTRY.items() if made.__module__.startswith("verl.")}
    for mode in LOSS_MEANS:
        assert agg_loss(torch.ones(1, 1), torch.ones(1, 1), mode) == 1
    assert set(LOGGERS) == {*Tracking.supported_backend, "tracking"}


def test_a_custom_advantage_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.trainer.ppo import core_algos

    config = composed("videozoomer", "cluster", "algorithm.adv_estimator=mine")
    with pytest.raises(SetupError):
        check_verl_features(config)
    monkeypatch.setitem(core_algos.ADV_ESTIMATOR_REGISTRY, "mine", print)
    check_verl_features(config)


@pytest.mark.parametrize(
    "overrides",
    [
        *(
            ["agentic_video.oversample=2.5", override]
            for override in (
                f"{BATCHES}=0",
                "algorithm.filter_groups.enable=False",
                "trainer.v1.trainer_mode=agentic_video_colocate_async",
            )
        ),
        [f"{BATCHES}=1", "algorithm.filter_groups.enable=False"],
        [f"{BATCHES}=0"],
    ],
)
def test_a_recipe_s_oversampling_may_stay_where_nothing_is_oversampled(overrides: list[str]) -> None:
    check_verl_features(composed("videozoomer", "laptop", *overrides))
