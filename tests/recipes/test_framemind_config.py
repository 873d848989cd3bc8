"""The recipe composes on verl's trainer config, passes verl's own validation, and is the paper's where it must be."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict

from agentic_video.recipe import compose_recipe
from agentic_video.settings import settings_of
from agentic_video.systems.framemind import FrameMind
from agentic_video.video.ladder import Rung

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "framemind"


def composed(profile: str, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> DictConfig:
    monkeypatch.setenv("MODEL_PATH", "/models/qwen")
    monkeypatch.setenv("TRAIN_FILES", "/data/train.parquet")
    return compose_recipe(RECIPE, profile, overrides)


# facts of the paper: Table E1, appendix E.2, sections 3 and 4.1
PAPER: dict[str, Any] = {
    "data.train_batch_size": 64,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 64,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 2,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 1,
    "actor_rollout_ref.actor.use_dynamic_bsz": True,
    "actor_rollout_ref.model.use_remove_padding": True,
    "actor_rollout_ref.model.enable_gradient_checkpointing": True,
    "actor_rollout_ref.actor.freeze_vision_tower": False,
    "actor_rollout_ref.actor.optim.lr": 1e-6,
    "actor_rollout_ref.actor.optim.weight_decay": 1e-2,
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": 0.0,
    "actor_rollout_ref.actor.grad_clip": 1.0,
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.actor.kl_loss_coef": 1e-3,
    "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
    "actor_rollout_ref.actor.fsdp_config.param_offload": False,
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload": False,
    "actor_rollout_ref.ref.fsdp_config.param_offload": False,
    "actor_rollout_ref.rollout.n": 8,
    "actor_rollout_ref.rollout.temperature": 0.7,
    "actor_rollout_ref.rollout.top_p": 0.9,
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 4,
    "actor_rollout_ref.rollout.gpu_memory_utilization": 0.7,
    "actor_rollout_ref.rollout.enforce_eager": False,
    "actor_rollout_ref.rollout.enable_chunked_prefill": False,
    "actor_rollout_ref.rollout.max_model_len": 32_768,
    "actor_rollout_ref.rollout.max_num_batched_tokens": 65_536,
    "actor_rollout_ref.rollout.engine_kwargs.vllm.limit_mm_per_prompt.image": 100,
    "actor_rollout_ref.rollout.val_kwargs.temperature": 0.01,
    "actor_rollout_ref.rollout.val_kwargs.top_p": 0.95,
    "actor_rollout_ref.rollout.val_kwargs.n": 1,
    "actor_rollout_ref.rollout.val_kwargs.do_sample": True,
    "algorithm.adv_estimator": "grpo",
    "algorithm.norm_adv_by_std_in_grpo": False,
    "algorithm.use_kl_in_reward": False,
    "algorithm.filter_groups.enable": False,
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8,
    "agentic_video.system.group_size": 8,
    "agentic_video.system.low.frames": 64,
    "agentic_video.system.low.height": 224,
    "agentic_video.system.low.width": 224,
    "agentic_video.system.high.frames": 32,
    "agentic_video.system.high.height": 448,
    "agentic_video.system.high.width": 448,
    "agentic_video.system.tool_side": 448,
    "agentic_video.system.clip_min_frames": 8,
    "agentic_video.system.clip_max_frames": 20,
    "agentic_video.system.max_turns": 3,
    "agentic_video.system.max_images": 100,
    "agentic_video.system.context": "latest_evidence",
    "agentic_video.system.answer_match": "exact",
    "agentic_video.system.weights.one_tool": 1.0,
    "agentic_video.system.weights.both_tools": 1.2,
    "agentic_video.system.weights.exploration": 0.2,
    "agentic_video.system.weights.turn": 0.5,
}


def test_cluster_is_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed("cluster", monkeypatch)
    assert {key: OmegaConf.select(config, key) for key in PAPER} == PAPER


def test_token_budgets_fit_the_model_length(monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed("cluster", monkeypatch)
    system = settings_of(config).system
    assert isinstance(system, FrameMind)
    prompt, response = config.data.max_prompt_length, config.data.max_response_length
    assert prompt + response == config.actor_rollout_ref.rollout.max_model_len
    assert config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu >= prompt + response
    # an image of h x w is h w / 784 tokens, two around it, and at most ten of its label
    views = [system.first_view(index) for index in range(8)]
    opening = max(view.frames * (view.height * view.width // 784 + 12) for view in views)
    assert opening == 37 * (225 + 12) == 8_769  # 37 frames of 420 x 420
    assert opening + 1_000 < prompt
    # the images of all of a turn's calls, and three turns
    evidence = system.max_calls * system.clip_max_frames * (256 + 12)
    assert evidence + 3 * config.agentic_video.max_turn_tokens <= response


@pytest.mark.parametrize("profile", ["laptop", "cluster"])
def test_config_passes_verls_validation(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    config = composed(profile, monkeypatch)
    if profile == "laptop":
        config.actor_rollout_ref.model.path = "/models/tiny"
    OmegaConf.resolve(config)
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    ref = config.actor_rollout_ref.ref
    with open_dict(ref):  # as verl's worker does before it converts the block
        for key in [key for key in ref if str(key).startswith("log_prob_")]:
            del ref[key]
        ref.ppo_micro_batch_size_per_gpu = 1
        ref.ppo_mini_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size
    for block in ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref", "algorithm"):
        omega_conf_to_dataclass(OmegaConf.select(config, block))


def test_the_yaml_lists_the_classs_own_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_of(composed("cluster", monkeypatch)).system == FrameMind()


def test_the_ladder_has_a_rung_for_each_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    system = settings_of(composed("cluster", monkeypatch, "actor_rollout_ref.rollout.n=3")).system
    assert isinstance(system, FrameMind)
    assert [system.first_view(index).frames for index in range(3)] == [64, 48, 32]


def test_laptop_is_small_and_centred_without_division(monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed("laptop", monkeypatch)
    system = settings_of(config).system
    assert isinstance(system, FrameMind)
    assert (system.low, system.high, system.tool_side) == (Rung(8, 28, 28), Rung(4, 56, 56), 28)
    assert [system.first_view(index).width for index in range(8)] == [28] * 4 + [56] * 4
    assert config.algorithm.norm_adv_by_std_in_grpo is False
    assert config.algorithm.filter_groups.enable is False
    limits = config.data.max_prompt_length + config.data.max_response_length
    assert limits == config.actor_rollout_ref.rollout.max_model_len
