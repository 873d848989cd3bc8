"""A key that nothing reads is refused by its name where a run changes it, in every stage."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from agentic_video.config.features import check_verl_features
from agentic_video.config.unread import INSTEAD, check_unread, table
from agentic_video.utils.errors import SetupError
from tests.config.configs import PROFILES, RECIPES, SYSTEMS, composed, set_environment


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_recipe_sets_one(system: str) -> None:
    for profile in (*PROFILES, "sft", "sft_laptop"):
        if (RECIPES / system / "config" / f"{profile}.yaml").is_file():
            check_unread(composed(system, profile))


@pytest.fixture(scope="module")
def configs() -> dict[str, DictConfig]:
    with pytest.MonkeyPatch.context() as patch:
        set_environment(patch)
        return {"grpo": composed("videozoomer", "cluster"), "sft": composed("videozoomer", "sft")}


@given(data=st.data())
@settings(deadline=None, max_examples=200)
def test_any_of_them_is_named(data: st.DataObject, configs: dict[str, DictConfig]) -> None:
    stage = data.draw(st.sampled_from(["grpo", "sft"]))
    key = data.draw(st.sampled_from(sorted(table()[stage]["unread"])))
    config = configs[stage].copy()
    OmegaConf.update(config, key, "changed", merge=False, force_add=True)
    with pytest.raises(SetupError) as caught:
        check_unread(config)
    assert caught.value.key == key and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("data.truncation=left", "data.max_prompt_length"),
        ("actor_rollout_ref.actor.grad_clip=0.5", "actor_rollout_ref.actor.optim.clip_grad"),
        ("actor_rollout_ref.rollout.multi_turn.max_assistant_turns=3", "agentic_video.system.max_turns"),
        ("actor_rollout_ref.rollout.do_sample=False", "actor_rollout_ref.rollout.temperature=0"),
        ("custom_reward_function.path=mine.py", "agentic_video.reward.path"),
        ("trainer.balance_batch=False", "trainer.balance_batch"),
        ("+data.mm_processor_kwargs.max_pixels=50176", "data.mm_processor_kwargs"),
        ("critic.optim.lr=2e-5", "critic.optim.lr"),
        ("algorithm.use_pf_ppo=True", "algorithm.use_pf_ppo"),
    ],
)
def test_the_launcher_s_check_names_it_and_what_is_read(override: str, named: str) -> None:
    with pytest.raises(SetupError, match=re.escape(named)):
        check_verl_features(composed("videozoomer", "cluster", override))


def test_several_are_named_at_once() -> None:
    with pytest.raises(SetupError) as caught:
        check_unread(composed("videozoomer", "cluster", "data.image_key=frames", "trainer.balance_batch=False"))
    assert caught.value.key == "data.image_key, trainer.balance_batch"


@pytest.mark.parametrize(
    "override",
    ["data.truncation=error", "~trainer.balance_batch", "trainer.log_val_generations=3", "critic.enable=null"],
)
def test_what_changes_nothing_or_is_read_passes(override: str) -> None:
    check_unread(composed("videozoomer", "cluster", override))


def test_what_is_named_instead_is_read_or_ours() -> None:
    read = {key for stage in table().values() for key in stage["read"]}
    for block, instead in INSTEAD.items():
        assert any(key == block or key.startswith(f"{block}.") for stage in table().values() for key in stage["unread"])
        key = re.split(r"[ ,=]", instead)[0]
        assert key.startswith("agentic_video.") or any(name == key or name.startswith(f"{key}.") for name in read)
