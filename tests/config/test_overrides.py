import re

import pytest
from omegaconf import DictConfig

from agentic_video.config.compose import compose_recipe
from agentic_video.config.overrides import OF_NULL, REPLACED, check_against, check_overrides, parse_overrides
from agentic_video.utils.errors import SetupError
from tests.config.configs import RECIPES


@pytest.fixture(scope="module")
def config() -> DictConfig:
    return compose_recipe(RECIPES / "videozoomer", "laptop")


def refused_key(text: str, config: DictConfig | None = None) -> str:
    """The key of the error about an override."""
    with pytest.raises(SetupError) as refused:
        check_overrides([text])
        check_against(config or DictConfig({}), parse_overrides([text]))
    assert "\n" not in str(refused.value)
    return refused.value.key


def test_words_that_hydra_cannot_read_are_refused() -> None:
    check_overrides(["a.b=1", "~a.c", "++a.d="])
    assert refused_key("oops") == "oops"
    assert refused_key("a.b=[1") == "a.b=[1"
    assert refused_key("trainer.save_freq=1,2") == "trainer.save_freq"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("trainer.total_epoch=1", "trainer.total_epochs"),
        ("train_batch_size=4", "data.train_batch_size"),
        ("actor_rollout_ref.rolout.n=4", "actor_rollout_ref.rollout"),
        ("agentic_video.system.zoom_max_frame=3", "agentic_video.system.zoom_max_frames"),
    ],
)
def test_the_nearest_key_is_proposed(config: DictConfig, text: str, meant: str) -> None:
    with pytest.raises(SetupError, match=re.escape(meant)) as refused:
        check_against(config, parse_overrides([text]))
    assert refused.value.key == text.partition("=")[0]


@pytest.mark.parametrize(
    "text",
    [
        "data.train_batch_size=abc",
        "data.train_batch_size=4.5",
        "data.train_batch_size=true",
        "actor_rollout_ref.actor.optim.lr=fast",
        "trainer.val_before_train=maybe",
        "trainer.val_before_train=1",
        "actor_rollout_ref.rollout.val_kwargs=3",
        "trainer.total_training_steps='10'",
        "data.seed=0.5",
        "critic.enable=maybe",
        "trainer.logger=7",
        *(f"{key}=ten" for key in OF_NULL),
    ],
)
def test_a_value_of_another_type_is_refused(config: DictConfig, text: str) -> None:
    assert refused_key(text, config) == text.partition("=")[0]


@pytest.mark.parametrize(
    "text",
    [
        "data.train_batch_size=4",
        "actor_rollout_ref.actor.optim.lr=1",  # a whole number is a number
        "trainer.val_before_train=false",
        "trainer.logger=[console]",
        "trainer.experiment_name=5",
        "trainer.total_training_steps=null",
        "trainer.total_training_steps=7",
        "data.gen_batch_size=${data.train_batch_size}",
        "actor_rollout_ref.model.tokenizer_path=7b",  # null that may be many things
        "trainer.test_freq=after_each_epoch",
        "data.train_batch_size=${trainer.nnodes}",
        "+trainer.mine=1",
        "++trainer.mine=abc",
        "~trainer.logger",
        *(f"{key}=null" for key in OF_NULL),
        "~actor_rollout_ref.actor.grad_clip",  # unread, but may go
        "data.train_files=[a.parquet,b.parquet]",
        "data.train_files=a.parquet",
        "hydra.run.dir=here",
        "agentic_video.system.max_turns=abc",  # refused by its dataclass, which may take words too
    ],
)
def test_what_verl_takes_passes(config: DictConfig, text: str) -> None:
    check_against(config, parse_overrides([text]))


@pytest.mark.parametrize("key", REPLACED)
def test_what_only_verl_s_own_episodes_go_by_is_refused(config: DictConfig, key: str) -> None:
    for text in (f"{key}=x", f"+{key}=x", f"{key}.deeper=x"):
        assert refused_key(text, config).startswith(key)


def test_a_custom_reward_manager_is_allowed(config: DictConfig) -> None:
    named = ["reward.reward_manager.source=importlib", "reward.reward_manager.name=Mine"]
    check_against(config, parse_overrides(named))
