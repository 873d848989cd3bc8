"""Each key of verl's config is read on a run's path, or is known to be unread."""

import json
from typing import Any

import pytest
from omegaconf import OmegaConf

from agentic_video.config.overrides import leaves
from agentic_video.config.reads import FILE, STOCK, Stage, _stock, table


@pytest.fixture(scope="module")
def found() -> Any:
    return table()


def test_the_file_is_what_the_source_says(found: Any) -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == found, "run python -m agentic_video.config.reads"


@pytest.mark.parametrize("stage", STOCK)
def test_no_key_is_left_out(stage: Stage, found: Any) -> None:
    keys = [key for key, _ in leaves(OmegaConf.to_container(_stock(stage)))]
    assert sorted([*found[stage]["read"], *found[stage]["unread"]]) == sorted(keys)
    assert len(keys) > 150


@pytest.mark.parametrize(
    ("key", "reader"),
    [  # looked up by hand in verl 0.9.1
        ("data.train_batch_size", "verl"),
        ("actor_rollout_ref.actor.optim.clip_grad", "verl"),
        ("actor_rollout_ref.actor.clip_ratio_high", "verl"),
        ("actor_rollout_ref.actor.policy_loss.clip_cov_ratio", "verl"),  # by a loss that is registered by its name
        ("actor_rollout_ref.actor.fsdp_config.qat.quantization_config_path", "verl"),
        ("actor_rollout_ref.actor.fsdp_config.wrap_policy.min_num_params", "verl"),  # through a function of its own
        ("actor_rollout_ref.actor.freeze_vision_tower", "agentic_video"),  # read where a patch of ours is
        ("actor_rollout_ref.rollout.val_kwargs.do_sample", "verl"),
        ("algorithm.filter_groups.metric", "verl"),
        ("trainer.v1.separate_async.hybrid_rollout.enable_switch", "verl"),
        ("transfer_queue.backend.storage_backend", "passed on"),
        ("actor_rollout_ref.actor.grad_clip", None),
        ("actor_rollout_ref.rollout.do_sample", None),  # val_kwargs has one of its name, which is read
        ("actor_rollout_ref.rollout.multi_turn.format", None),  # its agent loop isn't ours
        ("actor_rollout_ref.rollout.over_sample_rate", None),
        ("actor_rollout_ref.nccl_timeout", "agentic_video"),  # a patch of ours
        ("data.image_key", None),  # its data set isn't ours
        ("data.filter_overlong_prompts", None),
        ("trainer.balance_batch", None),  # only the older trainer asks
        ("trainer.esi_redundant_time", None),
        ("algorithm.use_pf_ppo", None),
        ("reward_model.enable", None),  # of an older config; reward.reward_model.enable is read
    ],
)
def test_readers_are_those_that_a_person_finds(key: str, reader: str | None, found: Any) -> None:
    assert str(found["grpo"]["read"].get(key)).partition(".")[0] == str(reader)
    assert (key in found["grpo"]["unread"]) is (reader is None)


def test_kwargs_of_the_chat_template_are_on_the_list(found: Any) -> None:
    for stage in STOCK:
        kinds = found[stage]
        assert "data.apply_chat_template_kwargs" in {**kinds["read"], **kinds["unread"]}
