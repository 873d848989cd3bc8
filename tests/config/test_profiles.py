"""The profiles for few GPUs: ``cluster.yaml`` and a list of changes."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from omegaconf import DictConfig

from agentic_video.config.settings import limits_of, settings_of
from agentic_video.planning.pictures import check_rollout_room, fitted_system, opening_pictures
from agentic_video.planning.published_checkpoints import checkpoint_rules
from agentic_video.planning.report import plan_of
from agentic_video.planning.shapes import shape_of
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.shown import shows_clips
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import ClipRef, EndReason
from tests.config.configs import SYSTEMS, composed, set_environment, validate_with_verl
from tests.conftest import MemorySource
from tests.share import a_few

FEW = ("single", "four")
EVERY = [(name, profile) for name in SYSTEMS for profile in FEW]
ALL = [(name, profile) for name in SYSTEMS for profile in ("cluster", *FEW)]


def is_fast(one: tuple[str, str]) -> bool:
    """Whether a system's profile is with the fast tests; the others' are with the slow ones."""
    return one[0] in ("videozoomer", "paravt")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


def config_of(name: str, profile: str) -> DictConfig:
    return composed(name, "cluster", *([f"+profile={profile}"] if profile != "cluster" else []))


@pytest.mark.parametrize(("name", "profile"), a_few(EVERY, is_fast, spread=True))
def test_verl_accepts_it(name: str, profile: str) -> None:
    config = config_of(name, profile)
    validate_with_verl(config)
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size == config.data.train_batch_size


@pytest.mark.parametrize(("name", "profile"), EVERY)
def test_budgets_hold_together(name: str, profile: str) -> None:
    config = config_of(name, profile)
    system, rollout = settings_of(config).system, config.actor_rollout_ref.rollout
    assert rollout.engine_kwargs.vllm.limit_mm_per_prompt.image >= system.max_images
    assert rollout.engine_kwargs.vllm.limit_mm_per_prompt.video == 32 * shows_clips(system)
    longest = config.data.max_prompt_length + config.data.max_response_length
    assert longest == rollout.max_model_len == config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu
    limits = limits_of(config)
    assert limits.turn <= limits.response
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size * rollout.n % config.trainer.n_gpus_per_node == 0


@pytest.mark.parametrize("name", SYSTEMS)
def test_single_trains_adapters_outside_the_vision_tower(name: str) -> None:
    model = config_of(name, "single").actor_rollout_ref.model
    assert (model.lora_rank, model.target_modules, model.exclude_modules) == (
        32,
        "all-linear",
        ".*(visual|vision|audio|projector).*",
    )
    assert not model.lora.merge and config_of(name, "single").actor_rollout_ref.rollout.load_format == "safetensors"


@pytest.mark.parametrize("name", SYSTEMS)
def test_rules_stay_the_published_ones(name: str) -> None:
    cluster = config_of(name, "cluster")
    for profile in FEW:
        config = config_of(name, profile)
        assert settings_of(config).system.weights == settings_of(cluster).system.weights
        assert config.algorithm == cluster.algorithm
        assert config.actor_rollout_ref.actor.clip_ratio_high == cluster.actor_rollout_ref.actor.clip_ratio_high


@pytest.mark.parametrize(
    ("profile", "gpu_gib", "host_gib", "changes"),
    [
        ("single", 24, 64, ("actor_rollout_ref.actor.fsdp_config.offload_policy=True",)),
        ("single", 48, 64, ()),
        ("single", 80, 64, ()),
        ("four", 80, 512, ()),
    ],
)
@pytest.mark.parametrize("name", SYSTEMS)
def test_it_fits(name: str, profile: str, gpu_gib: int, host_gib: int, changes: tuple[str, ...]) -> None:
    """As it is, or with what the planner proposes."""
    plan = plan_of(config_of(name, profile), gpu_gib=gpu_gib, host_gib=host_gib)
    proposed = {change for item in plan.findings if item.verdict != "fits" for change in item.changes}
    assert proposed == set(changes)
    mended = composed(name, "cluster", f"+profile={profile}", *changes)
    assert plan_of(mended, gpu_gib=gpu_gib, host_gib=host_gib).verdict == "fits"


@pytest.mark.parametrize("model", ["Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen3.5-9B"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_recipe_can_be_put_on_a_newer_model(name: str, model: str) -> None:
    """Without any other change; the planner may know a faster or roomier one."""
    config = config_of(name, "cluster")
    plan = plan_of(config, model=model)
    assert plan.verdict != "does not fit" and plan.job.shape.name == model
    rules = checkpoint_rules(model)
    assert rules is not None
    system = fitted_system(settings_of(config).system, rules)
    views = opening_pictures(system, rules, config.actor_rollout_ref.rollout.n)
    assert (views.image_tokens > 0) == (system.overview != "none" and not shows_clips(system))
    check_rollout_room(views, rules, config.actor_rollout_ref.rollout)


def opening(config: DictConfig, qa: VideoQA, index: int) -> Any:
    """A group's rollout on ten minutes of 1280 x 720, which answers at once."""
    system = settings_of(config).system
    if hasattr(system, "overview_least"):  # drawn for each video: the plan is of the longest view
        system = replace(system, overview_least=system.overview_frames)
    source = MemorySource(duration=600.0, size=(1280, 720))
    said = ScriptedPolicy(lambda view: "<answer>B</answer>")
    return asyncio.run(play(system, said, qa, source, rollout_index=index))


@pytest.mark.parametrize(("name", "profile"), a_few(ALL, is_fast, spread=True))
def test_the_plan_s_episode_is_what_the_system_shows(name: str, profile: str, qa: VideoQA) -> None:
    """A group's mean first view, in visual tokens, to 10 %."""
    config = config_of(name, profile)
    episode, system = config.agentic_video.plan, settings_of(config).system
    group = [opening(config, qa, index) for index in range(config.actor_rollout_ref.rollout.n)]
    assert all(item.end is not EndReason.IMAGE_BUDGET for item in group)
    assert episode.frames <= system.max_images
    shape = shape_of(episode.model)
    assert episode.width % system.size_factor == episode.height % system.size_factor == 0
    assert system.size_factor == shape.vision.patch * shape.vision.merge
    rules = checkpoint_rules(episode.model, shape.family)
    assert rules is not None
    planned = episode.overview_frames * rules.tokens(*rules.kept(episode.width, episode.height))
    planned /= 1 + shows_clips(system)
    # two frames of a clip are as many tokens as one image
    views = [
        [
            rules.tokens(*rules.kept(shown.width, shown.height))
            * (len(shown.frames) / 2 if isinstance(shown, ClipRef) else 1)
            for shown in one.visuals
        ]
        for one in group
    ]
    assert planned == pytest.approx(sum(map(sum, views)) / len(views), rel=0.1)
    # two tokens around each frame, and those of its label, where it has one; two frames of a clip are one picture
    pair = 2 if shows_clips(system) else 1
    labelled = any(isinstance(part, str) for message in group[0].opening for part in message.parts[1:-1])
    around = 12 if labelled else 2
    assert max(sum(view) // pair + around * len(view) for view in views) + 1_000 < config.data.max_prompt_length
