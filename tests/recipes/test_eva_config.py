"""EVA's recipe composes on verl's trainer config, passes verl's own validation, and is the paper's where it must be."""

from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict

from agentic_video.recipe import compose_recipe
from agentic_video.settings import settings_of
from agentic_video.systems.eva import Eva

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "eva"

# facts of the paper and the released code
PAPER = {
    "data.train_batch_size": 64,
    "actor_rollout_ref.rollout.n": 8,
    "actor_rollout_ref.actor.optim.lr": 1e-6,
    "actor_rollout_ref.actor.use_kl_loss": True,
    "algorithm.adv_estimator": "grpo",
    "algorithm.use_kl_in_reward": False,
    "trainer.total_epochs": 1,
    "trainer.nnodes": 4,
    "trainer.n_gpus_per_node": 8,
    "agentic_video.max_turn_tokens": 2_048,
    "agentic_video.system.overview": "none",
    "agentic_video.system.max_tokens": 12_000,
    "agentic_video.system.max_short_side": 720,
    "agentic_video.system.size_factor": 28,
    "agentic_video.system.max_turns": 6,
    "agentic_video.system.csv": True,
    "agentic_video.system.weights.tool_call": 0.05,
}


def composed(profile: str, monkeypatch: pytest.MonkeyPatch) -> DictConfig:
    for name in ("NNODES", "GPUS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODEL_PATH", "/models/qwen")
    monkeypatch.setenv("TRAIN_FILES", "/data/train.parquet")
    return compose_recipe(RECIPE, profile)


def test_cluster_is_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed("cluster", monkeypatch)
    assert {key: OmegaConf.select(config, key) for key in PAPER} == PAPER


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
    system = settings_of(config).system
    assert isinstance(system, Eva)
    assert config.actor_rollout_ref.rollout.engine_kwargs.vllm.limit_mm_per_prompt.image >= system.max_images
    if profile == "cluster":
        # the yaml lists the class's own defaults
        assert system == Eva()
        listed = set(config.agentic_video.system) - {"_target_"}
        assert listed == set(Eva.__dataclass_fields__) - {"name", "stop"}


def test_laptop_shows_one_visual_token_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    system = settings_of(composed("laptop", monkeypatch)).system
    assert isinstance(system, Eva)
    assert system.min_pixels == system.max_pixels == system.size_factor**2
    assert system.max_tokens == system.max_frames == 6


def test_unknown_keys_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed("cluster", monkeypatch)
    OmegaConf.set_struct(config, False)
    config.agentic_video.system.max_frame = 1
    with pytest.raises(ValueError, match="max_frame"):
        settings_of(config)
