"""The recipe composes, passes verl's own validation, and is the published run where it must be."""

from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from agentic_video.recipe import compose_recipe
from agentic_video.settings import settings_of
from agentic_video.systems.videobrain import VideoBrain

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "videobrain"


def composed(profile: str, monkeypatch: pytest.MonkeyPatch) -> DictConfig:
    monkeypatch.setenv("MODEL_PATH", "/models/qwen")
    monkeypatch.setenv("TRAIN_FILES", "/data/train.parquet")
    return compose_recipe(RECIPE, profile)


# facts of the paper and the released code
PUBLISHED = {
    "data.train_batch_size": 32,
    "data.max_prompt_length": 8_192,
    "data.max_response_length": 16_384,
    "agentic_video.max_turn_tokens": 8_192,
    "agentic_video.retrieval.model": "ViT-B-16-SigLIP2",
    "actor_rollout_ref.rollout.n": 8,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 32,
    "actor_rollout_ref.actor.optim.lr": 1e-6,
    "actor_rollout_ref.actor.freeze_vision_tower": True,
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.actor.kl_loss_coef": 1e-3,
    "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
    "actor_rollout_ref.actor.entropy_coeff": 1e-3,
    "algorithm.adv_estimator": "grpo",
    "algorithm.use_kl_in_reward": False,
    "algorithm.norm_adv_by_std_in_grpo": True,
    "trainer.total_epochs": 1,
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8,
    "agentic_video.system.overview_frames": 16,
    "agentic_video.system.max_width": 640,
    "agentic_video.system.max_height": 360,
    "agentic_video.system.uniform_frames": 8,
    "agentic_video.system.clip_frames": 4,
    "agentic_video.system.clip_candidates": 128,
    "agentic_video.system.clip_candidates_long": 256,
    "agentic_video.system.long_video_frames": 20_000,
    "agentic_video.system.max_turns": 5,
    "agentic_video.system.max_images": 128,
    "agentic_video.system.answer_match": "judge",
    "agentic_video.system.duplicate_margin": 1,
    "agentic_video.system.weights.format": 0.05,
    "agentic_video.system.weights.direct_right_without": 0.5,
    "agentic_video.system.weights.active_wrong_with": 0.2,
}


@pytest.mark.parametrize("key", PUBLISHED)
def test_cluster_is_the_published_run(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OmegaConf.select(composed("cluster", monkeypatch), key) == PUBLISHED[key]


def test_the_yaml_lists_the_classs_own_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed("cluster", monkeypatch)
    assert settings_of(config).system == VideoBrain()
    named = {field for field in VideoBrain.__dataclass_fields__ if field not in ("name", "stop")}
    assert set(config.agentic_video.system) == {*named, "_target_"}
    assert set(config.agentic_video.system.weights) == {*vars(VideoBrain().weights), "_target_"}


def test_the_judge_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_BASE_URL", "http://judge:8000/v1")
    monkeypatch.setenv("JUDGE_MODEL", "some-judge")
    judge = settings_of(composed("cluster", monkeypatch)).judge
    assert (judge.base_url, judge.model) == ("http://judge:8000/v1", "some-judge")


def test_laptop_needs_no_judge_and_one_visual_token_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    system = settings_of(composed("laptop", monkeypatch)).system
    assert isinstance(system, VideoBrain)
    assert system.answer_match == "robust"
    assert (system.max_width, system.max_height, system.size_factor) == (32, 32, 32)


@pytest.mark.parametrize("profile", ["laptop", "cluster"])
def test_config_passes_verls_validation(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    config = composed(profile, monkeypatch)
    if profile == "laptop":
        config.actor_rollout_ref.model.path = "/models/tiny"
    OmegaConf.resolve(config)
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    assert (
        config.data.max_prompt_length + config.data.max_response_length
        <= config.actor_rollout_ref.rollout.max_model_len
    )
