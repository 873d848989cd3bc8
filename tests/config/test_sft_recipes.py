"""The SFT configs: published constants, and episodes that are the ones GRPO plays."""

from dataclasses import replace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.utils.config import omega_conf_to_dataclass

from agentic_video.config.settings import episode_limits, limits_of, settings_of
from tests.config.configs import RECIPES, SYSTEMS, composed

ENVIRONMENT = {"MODEL_PATH": "/m", "TRAIN_FILES": "/r.jsonl", "JUDGE_BASE_URL": "http://j/v1", "JUDGE_MODEL": "j"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VAL_FILES", "NNODES", "GPUS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(("profile", "grpo"), [("sft", "cluster"), ("sft_laptop", "laptop")])
def test_episodes_are_those_of_grpo(system: str, profile: str, grpo: str) -> None:
    sft, rollouts = composed(system, profile), composed(system, grpo)
    settings = settings_of(sft.data)
    # a small sub-agent must be taught, too; what it says is no part of the agent's sequence
    taught = (
        replace(settings.system, train_asides=False)
        if profile == "sft_laptop" and system == "paravt"
        else settings.system
    )  # type: ignore[type-var]
    assert taught == settings_of(rollouts).system
    assert episode_limits(sft.data, settings) == limits_of(rollouts)
    limits = episode_limits(sft.data, settings)
    assert sft.data.max_token_len_per_gpu >= limits.prompt + limits.response


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("profile", ["sft", "sft_laptop"])
def test_verl_takes_the_config(system: str, profile: str) -> None:
    config = composed(system, profile)
    OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    engine: Any = omega_conf_to_dataclass(config.engine)
    assert engine.strategy == "fsdp2"
    omega_conf_to_dataclass(config.optim)
    omega_conf_to_dataclass(config.checkpoint)
    assert "hf_model" in config.checkpoint.save_contents
    assert config.data.val_files or config.trainer.test_freq == -1  # verl's trainer fails on nothing to validate


PUBLISHED = {
    # batch, learning rate, epochs, rank of LoRA, frozen vision
    "videozoomer": (64, 5e-6, 1, 0, True),
    "framethinker": (32, 1e-4, None, 8, False),
    "videobrain": (None, None, 1, 0, None),
    "eva": (8, 2e-6, 2, 0, False),
    "paravt": (None, 2e-5, None, 0, False),
    "longvt": (None, 5e-5, None, 0, False),
    "videoo3": (256, 1e-5, 1, 0, True),
}


@pytest.mark.parametrize("system", PUBLISHED)
def test_published_constants(system: str) -> None:
    config = composed(system, "sft")
    found = (
        config.data.train_batch_size,
        config.optim.lr,
        config.trainer.total_epochs,
        config.model.lora_rank,
        config.trainer.freeze_vision_tower,
    )
    for value, published in zip(found, PUBLISHED[system], strict=True):
        assert published is None or value == published
    # Video-o3's released configs train the projector beside the language model
    assert config.trainer.freeze_merger == (system != "videoo3")
    warm_up = {"paravt": 0.05}.get(system, 0.1)
    assert (config.optim.lr_scheduler_type, config.optim.lr_warmup_steps_ratio) == ("cosine", warm_up)


def test_longvt_s_third_stage_is_its_first_with_fewer_steps() -> None:
    sft, rft = composed("longvt", "sft"), composed("longvt", "rft")
    assert (sft.trainer.total_training_steps, rft.trainer.total_training_steps) == (3_000, 1_600)
    assert (sft.optim.lr, sft.optim.weight_decay) == (rft.optim.lr, rft.optim.weight_decay) == (5e-5, 0.0)
    for one in (sft, rft):
        one.trainer.total_training_steps = one.trainer.experiment_name = None
    assert OmegaConf.to_container(rft, resolve=False) == OmegaConf.to_container(sft, resolve=False)
    assert composed("longvt", "rft_laptop").trainer.experiment_name == "longvt_rft_laptop"


STAGE_2 = (
    "agentic_video.sft.hidden_probability=0.1",
    'agentic_video.sft.hidden=[[answer,last,opening],[grounding,"2",observations]]',
    "model.use_remove_padding=False",
    "+model.override_config.attn_implementation=sdpa",
)


def test_videoo3_s_second_stage_hides_frames_from_tags() -> None:
    config = composed("videoo3", "sft", *STAGE_2)
    sft = settings_of(config.data).sft
    assert sft.hidden == (("answer", "last", "opening"), ("grounding", "2", "observations"))
    assert sft.hidden_probability == 0.1
    assert config.model.override_config.attn_implementation == "sdpa" and not config.model.use_remove_padding
    page = (RECIPES / "videoo3" / "README.md").read_text(encoding="utf-8")
    assert all(override in page for override in STAGE_2)
