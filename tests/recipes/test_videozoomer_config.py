"""The recipe composes on verl's trainer config, passes verl's own validation, and is the paper's where it must be."""

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf, open_dict

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "videozoomer"


class RecipeSearchPath(SearchPathPlugin):
    """What ``--config-dir`` does on the command line."""

    def manipulate_search_path(self, search_path: Any) -> None:
        search_path.append("recipe", f"file://{RECIPE / 'config'}")
        search_path.append("package", "pkg://agentic_video.config")


def composed(profile: str, monkeypatch: pytest.MonkeyPatch) -> DictConfig:
    monkeypatch.setenv("MODEL_PATH", "/models/qwen")
    monkeypatch.setenv("TRAIN_FILES", "/data/train.parquet")
    Plugins.instance().register(RecipeSearchPath)
    GlobalHydra.instance().clear()
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(profile, overrides=[])
    return config


# facts of the paper and the released code
PAPER = {
    "data.train_batch_size": 128,
    "data.max_prompt_length": 20_480,
    "data.max_response_length": 32_768,
    "agentic_video.max_turn_tokens": 4_096,
    "actor_rollout_ref.rollout.n": 16,
    "actor_rollout_ref.rollout.temperature": 1.0,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 32,
    "actor_rollout_ref.actor.optim.lr": 1e-6,
    "actor_rollout_ref.actor.clip_ratio_low": 0.2,
    "actor_rollout_ref.actor.clip_ratio_high": 0.27,
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.actor.kl_loss_coef": 1e-3,
    "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
    "actor_rollout_ref.actor.entropy_coeff": 1e-3,
    "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
    "algorithm.adv_estimator": "grpo",
    "algorithm.norm_adv_by_std_in_grpo": True,
    "algorithm.use_kl_in_reward": False,
    "algorithm.filter_groups.enable": True,
    "trainer.nnodes": 2,
    "trainer.n_gpus_per_node": 8,
    "agentic_video.system.overview_fps": 0.5,
    "agentic_video.system.overview_max_frames": 64,
    "agentic_video.system.min_pixels": 25_088,
    "agentic_video.system.max_pixels": 100_352,
    "agentic_video.system.zoom_max_frames": 16,
    "agentic_video.system.max_turns": 5,
    "agentic_video.system.max_images": 128,
    "agentic_video.system.answer_match": "videozoomer",
    "agentic_video.system.weights.acc": 0.9,
    "agentic_video.system.weights.format": 0.1,
    "agentic_video.system.weights.tool": 0.5,
    "agentic_video.judge.on_failure": "drop_group",
}


@pytest.mark.parametrize("key", PAPER)
def test_cluster_is_the_paper(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OmegaConf.select(composed("cluster", monkeypatch), key) == PAPER[key]


@pytest.mark.parametrize("profile", ["laptop", "cluster"])
def test_config_passes_verls_validation(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    from agentic_video.settings import settings_of
    from agentic_video.systems.videozoomer import VideoZoomer

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
    settings = settings_of(config)
    assert isinstance(settings.system, VideoZoomer)
    if profile == "cluster":
        assert settings.system == VideoZoomer()  # the yaml lists the class's own defaults


def test_laptop_plays_what_the_tiny_model_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentic_video.settings import settings_of
    from agentic_video.toyworld.laptop import LIMITS, laptop_system

    config = composed("laptop", monkeypatch)
    settings = settings_of(config)
    assert settings.system == laptop_system()
    limits = (config.data.max_prompt_length, config.data.max_response_length, settings.max_turn_tokens)
    assert limits == (LIMITS.prompt, LIMITS.response, LIMITS.turn)


def test_laptop_clips_higher_and_samples_dynamically(monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed("laptop", monkeypatch)
    assert config.actor_rollout_ref.actor.clip_ratio_high == 0.27 > config.actor_rollout_ref.actor.clip_ratio_low
    assert config.algorithm.filter_groups.enable
    assert config.algorithm.filter_groups.metric == "reward_key"


def test_unknown_keys_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentic_video.settings import settings_of

    config = composed("cluster", monkeypatch)
    OmegaConf.set_struct(config, False)
    config.agentic_video.system.overview_fsp = 1.0
    with pytest.raises(ValueError, match="overview_fsp"):
        settings_of(config)
    del config.agentic_video.system["overview_fsp"]
    config.agentic_video.judge.modle = "x"
    with pytest.raises(ValueError, match=r"agentic_video\.judge.*modle"):
        settings_of(config)
    del config.agentic_video.judge["modle"]
    config.agentic_video.jugde = {}
    with pytest.raises(ValueError, match="jugde"):
        settings_of(config)
    with pytest.raises(ValueError, match="no block"):
        settings_of(OmegaConf.create({}))
