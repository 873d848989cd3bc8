"""The profiles that are ``cluster.yaml`` with changes: each key that differs is written down in a small yaml."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

import agentic_video.config
from agentic_video.config.compose import CHOICE, compose_recipe
from agentic_video.config.overrides import leaves
from agentic_video.config.settings import limits_of, settings_of
from agentic_video.systems.shown import shows_clips
from tests.config import configs
from tests.config.configs import RECIPES, SYSTEMS, set_environment

PACKAGE = Path(agentic_video.config.__file__).parent
NAMES = sorted(folder.name for folder in RECIPES.iterdir() if (folder / "config").is_dir())


def composed(recipe: Path, *overrides: str) -> dict[str, Any]:
    config = OmegaConf.to_container(compose_recipe(recipe, "cluster", overrides), resolve=False)
    assert isinstance(config, dict)
    return {key: value for key, value in leaves(config) if value != {}}


def written(file: Path, folders: tuple[Path, ...]) -> set[str]:
    """The keys that a yaml names, with those of the files that it is put on top of."""
    content = yaml.safe_load(file.read_text())
    keys = {key for key, _ in leaves({name: value for name, value in content.items() if name != "defaults"})}
    for name in content.get("defaults", []):
        if name != "_self_":
            found = [folder / f"{name.lstrip('/')}.yaml" for folder in folders]
            keys |= written(next(file for file in found if file.is_file()), folders)
    return keys


@pytest.mark.parametrize("name", NAMES)
def test_a_rehearsal_differs_where_it_says_so(name: str) -> None:
    recipe = RECIPES / name
    cluster, rehearsal = composed(recipe), composed(recipe, f"{CHOICE}rehearsal")
    missing = object()
    differ = {key for key in cluster | rehearsal if cluster.get(key, missing) != rehearsal.get(key, missing)}
    said = written(recipe / "config" / "profile" / "rehearsal.yaml", (recipe / "config", PACKAGE))
    assert differ - said == set()


@pytest.mark.slow
def test_no_key_of_the_rehearsal_is_in_vain() -> None:
    said = written(PACKAGE / "agentic_video_rehearsal.yaml", (PACKAGE,))
    differ: set[str] = set()
    for name in NAMES:
        cluster, rehearsal = composed(RECIPES / name), composed(RECIPES / name, f"{CHOICE}rehearsal")
        differ |= {key for key in said if cluster.get(key) != rehearsal[key]}
    assert said - differ == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_rehearsal_keeps_what_a_paper_s_run_does(name: str) -> None:
    recipe = RECIPES / name
    cluster, rehearsal = composed(recipe), composed(recipe, f"{CHOICE}rehearsal")
    for key in (
        "actor_rollout_ref.actor.use_kl_loss",
        "actor_rollout_ref.actor.kl_loss_coef",
        "actor_rollout_ref.actor.entropy_coeff",
        "actor_rollout_ref.actor.clip_ratio_low",
        "actor_rollout_ref.actor.clip_ratio_high",
        "actor_rollout_ref.actor.use_dynamic_bsz",
        "actor_rollout_ref.actor.freeze_vision_tower",
        "actor_rollout_ref.model.enable_gradient_checkpointing",
        "actor_rollout_ref.model.use_fused_kernels",
        "actor_rollout_ref.rollout.enable_prefix_caching",
        "actor_rollout_ref.rollout.enable_chunked_prefill",
        "actor_rollout_ref.rollout.router_config_path",
        "actor_rollout_ref.actor.checkpoint.save_contents",
        "algorithm.filter_groups.enable",
        "algorithm.norm_adv_by_std_in_grpo",
    ):
        assert rehearsal[key] == cluster[key], key
    assert rehearsal["actor_rollout_ref.actor.ppo_mini_batch_size"] < rehearsal["data.train_batch_size"]


@pytest.mark.parametrize("name", SYSTEMS)
def test_verl_accepts_a_rehearsal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)
    config = configs.composed(name, "cluster", f"{CHOICE}rehearsal")
    # what the launcher puts there: a rehearsal makes its own model and rows
    config.actor_rollout_ref.model.path = "/models/tiny"
    configs.validate_with_verl(config)
    system, limits = settings_of(config).system, limits_of(config)
    rollout = config.actor_rollout_ref.rollout
    assert limits.prompt + limits.response <= rollout.max_model_len
    assert rollout.engine_kwargs.vllm.limit_mm_per_prompt.image >= system.max_images
    assert rollout.engine_kwargs.vllm.limit_mm_per_prompt.video >= shows_clips(system)


def test_a_profile_that_is_not_there_is_said(tmp_path: Path) -> None:
    from agentic_video.utils.errors import SetupError

    with pytest.raises(SetupError, match=r"no config/profile/none\.yaml; there are .*rehearsal"):
        compose_recipe(RECIPES / "videozoomer", "cluster", [f"{CHOICE}none"])
