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


def test_words_without_a_value_are_refused() -> None:
    check_overrides(["a.b=1", "~a.c", "++a.d="])
    with pytest.raises(SetupError, match=r"^oops: neither an option nor a Hydra override"):
        check_overrides(["a.b=1", "oops"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.b=[1", r"^not a Hydra override: 'a\.b=\[1' \("),
        ("trainer.save_freq=1,2", r"'trainer\.save_freq=1,2' asks for several runs; write a list as key=\[a,b\]"),
    ],
)
def test_what_hydra_can_t_read_costs_one_line(text: str, message: str) -> None:
    with pytest.raises(SetupError, match=message) as caught:
        parse_overrides([text])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainer.total_epoch=1", r"^trainer\.total_epoch: no such key; did you mean trainer\.total_epochs\? \(\+"),
        ("train_batch_size=4", r"^train_batch_size: no such key; did you mean data\.train_batch_size\?"),
        ("actor_rollout_ref.rolout.n=4", r"did you mean actor_rollout_ref\.rollout\?"),
        ("agentic_video.system.zoom_max_frame=3", r"did you mean agentic_video\.system\.zoom_max_frames\?"),
        ("data.train_batch_size=abc", r"^data\.train_batch_size: expected a whole number, got 'abc'$"),
        ("data.train_batch_size=4.5", r"expected a whole number, got 4\.5$"),
        ("data.train_batch_size=true", r"expected a whole number, got true$"),
        (
            "actor_rollout_ref.actor.optim.lr=fast",
            r"^actor_rollout_ref\.actor\.optim\.lr: expected a number, got 'fast'$",
        ),
        ("trainer.val_before_train=maybe", r"expected true or false, got 'maybe'$"),
        ("trainer.val_before_train=1", r"expected true or false, got 1$"),
        (
            "actor_rollout_ref.rollout.val_kwargs=3",
            r"expected keys and values, e\.g\. .*val_kwargs\.\w+=\.\.\., got 3$",
        ),
        ("trainer.total_training_steps=ten", r"^trainer\.total_training_steps: expected a whole number, got 'ten'$"),
        ("trainer.total_training_steps='10'", r"^trainer\.total_training_steps: expected a whole number, got '10'$"),
        ("data.gen_batch_size=ten", r"^data\.gen_batch_size: expected a whole number, got 'ten'$"),
        ("data.seed=0.5", r"^data\.seed: expected a whole number, got 0\.5$"),
        ("critic.enable=maybe", r"^critic\.enable: expected true or false, got 'maybe'$"),
        ("trainer.logger=7", r"expected a list, e\.g\. \[a,b\], got 7$"),
    ],
)
def test_mistakes_are_named_with_what_was_meant(config: DictConfig, text: str, message: str) -> None:
    with pytest.raises(SetupError, match=message) as caught:
        check_against(config, parse_overrides([text]))
    assert "\n" not in str(caught.value)


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
        "~actor_rollout_ref.actor.grad_clip",  # unread, but may go
        "data.train_files=[a.parquet,b.parquet]",
        "data.train_files=a.parquet",
        "hydra.run.dir=here",
        "agentic_video.system.max_turns=abc",  # refused by its dataclass, which may take words too
    ],
)
def test_what_verl_takes_passes(config: DictConfig, text: str) -> None:
    check_against(config, parse_overrides([text]))


@pytest.mark.parametrize("key", OF_NULL)
def test_what_null_stands_for_are_keys_of_verl(config: DictConfig, key: str) -> None:
    check_against(config, parse_overrides([f"{key}=null"]))
    with pytest.raises(SetupError, match=rf"^{re.escape(key)}: expected "):
        check_against(config, parse_overrides([f"{key}=ten"]))


@pytest.mark.parametrize("key", REPLACED)
def test_what_only_verl_s_own_episodes_go_by_is_refused(config: DictConfig, key: str) -> None:
    for text in (f"{key}=x", f"+{key}=x", f"{key}.deeper=x"):
        with pytest.raises(
            SetupError, match=rf"^{re.escape(key)}[a-z.]*: these episodes don't go by it; agentic_video"
        ):
            check_against(config, parse_overrides([text]))


def test_a_custom_reward_manager_is_allowed(config: DictConfig) -> None:
    named = ["reward.reward_manager.source=importlib", "reward.reward_manager.name=Mine"]
    check_against(config, parse_overrides(named))
