"""Verdicts: what was found by hand about the recipes is found here, and what is proposed mends it."""

from dataclasses import replace

import pytest

from agentic_video.planning.job import PICTURE_CACHE
from agentic_video.planning.plan import engine_of, gpu_phases, make_plan, mended, update_phase
from agentic_video.utils.errors import SetupError
from agentic_video.utils.units import GIB
from tests.config.configs import SYSTEMS
from tests.planning.plans import plan

UNFUSED = "actor_rollout_ref.model.use_fused_kernels=False"
FSDP_SIZE = "actor_rollout_ref.actor.fsdp_config.fsdp_size"
SEPARATE = (
    "trainer.v1.trainer_mode=agentic_video_separate_async",
    "actor_rollout_ref.rollout.nnodes=1",
    "actor_rollout_ref.rollout.n_gpus_per_node=8",
    "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl",
)
WEIGHTS = 8_292_166_656 * 4
"""Of Qwen2.5-VL-7B in float32."""
OWN_GPUS = {
    "videozoomer": 16,
    "framethinker": 8,
    "framemind": 8,
    "videobrain": 8,
    "eva": 32,
    "longvt": 64,
    "timesearch": 16,
    "paravt": 8,
    "videoo3": 8,
}
"""What the papers trained on."""


# ParaVT's update of 7 questions of 8 rollouts can't be shared by 16
@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "paravt"])
def test_published_settings_fit_sixteen_gpus_of_80_gib(name: str) -> None:
    assert plan(name, 16).verdict == "fits"


@pytest.mark.parametrize(("name", "gpus"), OWN_GPUS.items())
def test_published_settings_fit_the_papers_own_gpus(name: str, gpus: int) -> None:
    found = plan(name)
    assert found.job.machines.gpus == gpus
    assert found.verdict == "fits"


UTILIZATION = "actor_rollout_ref.rollout.gpu_memory_utilization"


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("profile", ["cluster", "four", "single"])
def test_a_recipe_lends_its_engines_what_the_plan_says(name: str, profile: str) -> None:
    """No episodes wait for a cache that could be larger, and none of 80 GB is lent that the trainer needs.

    Except VideoZoomer's on 16 GPUs, where 0.8 would do, too: it shall fit 8 as it is.
    """
    chosen = () if profile == "cluster" else (f"+profile={profile}",)
    found = plan(name, OWN_GPUS[name] if profile == "cluster" else None, *chosen, gpu_gib=80)
    proposed = [change for one in found.findings for change in one.changes if change.startswith(UTILIZATION)]
    assert found.verdict == "fits"
    assert proposed == ([f"{UTILIZATION}=0.8"] if (name, profile) == ("videozoomer", "cluster") else [])
    if proposed:
        assert plan(name, 8).verdict == "fits"
        assert plan(name, 8, *proposed).verdict != "fits"


def test_no_more_is_proposed_than_is_needed() -> None:
    """VideoZoomer's engines on 32 GPUs hold 48 of its sequences from 0.75 of a GPU on: 43 with 0.7."""
    few = f"{UTILIZATION}=0.6", "actor_rollout_ref.rollout.max_num_seqs=45"
    proposed = plan("videozoomer", 16, *few).findings[0]
    assert proposed.changes == (f"{UTILIZATION}=0.75",)
    assert not plan("videozoomer", 16, few[1], *proposed.changes).findings


@pytest.mark.parametrize("name", SYSTEMS)
def test_tied_models_are_read_by_each_process_and_the_plan_says_so(name: str) -> None:
    """verl reads them on every rank: on four GPUs four times, in float32 where all weights are trained."""
    tied = plan(name, 4, "+profile=four", model="Qwen/Qwen2.5-VL-3B-Instruct")
    reads = tied.host[0].parts["model as it is read"]
    assert reads == 4 * tied.job.shape.parameters * 4
    (said,) = [one for one in tied.findings if "tied" in one.text]
    reads += tied.host[0].parts.get("reference model", 0)
    assert said.verdict == "fits" and f"{reads / GIB:.0f} GiB" in said.text
    untied = plan(name, 4, "+profile=four", model="Qwen/Qwen2.5-VL-7B-Instruct")
    assert untied.host[0].parts["model as it is read"] == untied.job.shape.parameters * 4
    assert not [one for one in untied.findings if "tied" in one.text]


def test_videozoomer_without_fused_kernels_does_not_fit() -> None:
    found = plan("videozoomer", 16, UNFUSED)
    training = found.gpu[0]
    assert training.name == "training, at the output head"
    assert training.parts["logits and entropy"] / GIB == pytest.approx(3 * 15.08, abs=0.05)
    assert 80 < training.total / GIB < 95
    assert found.verdict == training.verdict == "does not fit"
    assert found.findings[0].changes == ("actor_rollout_ref.model.use_fused_kernels=True",)


def test_uncompiled_entropy_is_far_worse() -> None:
    eager = plan("videozoomer", 16, UNFUSED, "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False")
    assert eager.gpu[0].parts["logits and entropy"] / GIB > 100


def test_ulysses_mends_it_too() -> None:
    """Four GPUs a sequence, each with a quarter of its tokens; the vision tower is not shared."""
    shared = plan(
        "videozoomer",
        16,
        UNFUSED,
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size=4",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=13312",
    )
    alone = plan("videozoomer", 16, UNFUSED)
    assert shared.verdict == "fits"
    tower = "vision tower's activations"
    phases = [update_phase(one.job) for one in (shared, alone)]
    assert phases[0].parts[tower] == phases[1].parts[tower]


def test_the_kv_cache_of_videozoomer_s_engines() -> None:
    engine = plan("videozoomer", 16).engine
    assert 30 <= engine.kv / 57_344 / 20_000 <= 45  # sequences of 20,000 tokens
    assert engine.wanted == 128
    assert engine.longest == pytest.approx(engine.kv / 57_344 / 53_248)


def test_clips_have_half_the_visual_tokens() -> None:
    images, video = (plan("framemind", 16, *more).job for more in ((), ("agentic_video.system.frames_as=video",)))
    # 336 x 336 pixels are 12 x 12 tokens of 28 pixels
    assert (images.frame_tokens, video.frame_tokens) == (144, 72)
    assert images.typical - video.typical == 68 * 72


def test_fewer_passes_fetch_less() -> None:
    without = plan("videozoomer", 16, "actor_rollout_ref.actor.use_kl_loss=False")
    assert [hop.name for hop in without.hops if "out of" in hop.name] == ["out of TransferQueue, 2 times"]
    assert "reference model" not in without.host[1].parts


def test_a_node_with_too_little_main_memory_gets_smaller_steps() -> None:
    found = plan("videozoomer", 16, host_gib=180)
    assert found.host[1].verdict == "does not fit"
    changes = next(one.changes for one in found.findings if one.text.startswith("main memory"))
    assert "data.train_batch_size=64" in changes
    assert plan("videozoomer", 16, *changes, host_gib=180).host[1].verdict == "fits"


def test_engines_that_keep_many_pictures_are_told_to_keep_fewer() -> None:
    found = plan("videozoomer", 16, f"++{PICTURE_CACHE}=64")
    assert found.host[1].parts["engines' processed pictures"] == 8 * 64 * GIB
    found = plan("videozoomer", 16, f"++{PICTURE_CACHE}=64", host_gib=512)
    (short,) = [one for one in found.findings if one.text.startswith("main memory")]
    assert short.verdict == "does not fit" and short.changes == (f"{PICTURE_CACHE}=4",)


def test_engines_that_process_again_are_told_to_keep_more() -> None:
    less = f"{PICTURE_CACHE}=4"
    (again,) = [one for one in plan("videozoomer", 8, less).findings if "processed again" in one.text]
    # 8 engines, 16 questions each: 16 x (64 + 16 x 24) frames of 512 patches of 1,176 bfloat16; 4 GiB hold 3,566
    assert "keeps 3566 processed frames, its questions of a step have up to 7168" in again.text
    assert again.changes == (f"++{PICTURE_CACHE}=9",) and again.verdict == "fits"
    for enough in (*again.changes, "trainer.nnodes=1"):
        assert not [one for one in plan("videozoomer", 8, enough).findings if "processed again" in one.text]


@pytest.mark.parametrize(
    ("name", "gpus", "gpu_gib", "overrides"),
    [
        ("videozoomer", 16, 80, (UNFUSED,)),
        ("videozoomer", 16, 80, (UNFUSED, "actor_rollout_ref.model.enable_gradient_checkpointing=False")),
        ("eva", 16, 48, ()),
        ("videobrain", 8, 80, (UNFUSED, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=98304")),
        ("framethinker", 2, 80, ()),
        ("videozoomer", 1, 40, ("actor_rollout_ref.model.lora_rank=32",)),
        ("framemind", 8, 48, ("actor_rollout_ref.rollout.tensor_model_parallel_size=1",)),
    ],
)
def test_what_is_proposed_mends_what_was_found(name: str, gpus: int, gpu_gib: int, overrides: tuple[str, ...]) -> None:
    """The overrides, as they are printed, on the config itself."""
    found = plan(name, gpus, *overrides, gpu_gib=gpu_gib)
    assert found.verdict != "fits"
    changes = [change for one in found.findings if one.verdict != "fits" for change in one.changes]
    assert changes and all("=" in change for change in changes), found.findings
    named = {change.partition("=")[0] for change in changes}
    kept = [one for one in overrides if one.partition("=")[0] not in named]
    assert plan(name, gpus, *kept, *changes, gpu_gib=gpu_gib).verdict == "fits"


def test_where_no_key_is_enough_it_says_what_is() -> None:
    findings = plan("videozoomer", 1, model="Qwen2.5-VL-32B").findings
    stuck = [one.text for one in findings if one.verdict == "does not fit" and not one.changes]
    assert stuck and all("; no key is enough: take " in text for text in stuck), stuck


def test_nothing_is_proposed_that_is_not_needed() -> None:
    job = plan("videozoomer", 16, UNFUSED).job
    from agentic_video.planning.plan import TRAINING

    mends = mended(job, [*reversed(TRAINING)], lambda one: update_phase(one).verdict == "fits")
    again = mended(job, TRAINING, lambda one: update_phase(one).verdict == "fits")
    assert again == ("actor_rollout_ref.model.use_fused_kernels=True",)
    assert mends and UNFUSED.replace("False", "True") not in mends


@pytest.mark.parametrize(
    ("override", "change"),
    [
        (
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384",
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=53248",
        ),
        ("actor_rollout_ref.rollout.max_model_len=40000", "actor_rollout_ref.rollout.max_model_len=53248"),
        (
            "actor_rollout_ref.rollout.tensor_model_parallel_size=3",
            "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        ),
        ("actor_rollout_ref.actor.ppo_mini_batch_size=3", "actor_rollout_ref.actor.ppo_mini_batch_size=4"),
    ],
)
def test_sizes_that_verl_refuses(override: str, change: str) -> None:
    gpus = 64 if "mini" in override else 16
    found = plan("videozoomer", gpus, override)
    assert found.verdict == "does not fit"
    assert change in found.findings[0].changes


def test_batches_that_are_no_dynamic_ones_are_mended_by_the_keys_that_verl_reads() -> None:
    fixed = ("actor_rollout_ref.actor.use_dynamic_bsz=False", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8")
    found = plan("videozoomer", 16, *fixed)
    assert (found.job.micro_batch, found.job.micro_tokens) == (8, 8 * 53_248)
    # two GPUs a sequence have half of each
    halves = plan("videozoomer", 16, *fixed, "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2")
    assert halves.job.micro_tokens == 4 * 53_248
    changes = [change for one in found.findings for change in one.changes]
    assert "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1" in changes
    assert "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1" in changes
    assert "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1" in changes
    assert not [change for change in changes if "token_len" in change]
    assert plan("videozoomer", 16, fixed[0], *changes).verdict == "fits"


def test_data_parallel_engines_have_a_cache_each_and_share_their_server_s_pictures() -> None:
    """16 engines on 16 GPUs, as without; 2 of them to a server."""
    alone, two = (plan("videozoomer", 16, f"actor_rollout_ref.rollout.data_parallel_size={size}") for size in (1, 2))
    assert (alone.job.engines, alone.job.servers) == (16, 16)
    assert (two.job.engines, two.job.servers) == (16, 8)
    assert two.engine == alone.engine and two.gpu == alone.gpu
    pictures = "engines' processed pictures"
    assert 2 * two.host[1].parts[pictures] == alone.host[1].parts[pictures]
    name = "vLLM's preprocessing"
    assert two.seconds.rollouts[name].seconds == 2 * alone.seconds.rollouts[name].seconds
    (wrong,) = [
        one for one in plan("videozoomer", 16, "actor_rollout_ref.rollout.data_parallel_size=3").findings
        if "16 GPUs can't be shared by engines of 3" in one.text
    ]  # fmt: skip
    assert wrong.changes == ("actor_rollout_ref.rollout.data_parallel_size=1",)


def test_an_engine_must_hold_its_longest_sequence() -> None:
    found = plan("videozoomer", 16, "actor_rollout_ref.rollout.gpu_memory_utilization=0.28")
    (refused,) = [one for one in found.findings if "refuses to start" in one.text]
    assert refused.verdict == "does not fit" and found.engine.longest < 1
    assert engine_of(plan("videozoomer", 16, *refused.changes).job).longest > 1


def test_parts_follow_the_config() -> None:
    job = plan("videozoomer", 16).job
    states = [update_phase(replace(job, machines=replace(job.machines, gpus=gpus))).parts for gpus in (8, 16)]
    assert states[0]["weights"] == 2 * states[1]["weights"] == pytest.approx(8_292_166_656 * 4 / 8)
    rolling = gpu_phases(replace(job, param_offload=True, optimizer_offload=True))[2].parts
    assert "trainer's weights" not in rolling and "trainer's optimizer" not in rolling
    frozen = plan("videozoomer", 16, "actor_rollout_ref.actor.freeze_vision_tower=True")
    assert frozen.gpu[0].parts["vision tower's activations"] < 2 * GIB
    awake = make_plan(replace(job, sleeps=False))
    assert awake.verdict == "does not fit" and awake.gpu[0].parts["engine"] == 0.75 * 80 * GIB


@pytest.mark.parametrize(("size", "shards"), [(-1, 16), (1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 16)])
def test_groups_of_fsdp_size_share_what_is_trained(size: int, shards: int) -> None:
    found = plan("videozoomer", 16, f"{FSDP_SIZE}={size}")
    states = {"weights": WEIGHTS / shards, "optimizer": 2 * WEIGHTS / shards, "gradients": WEIGHTS / shards}
    assert {name: found.gpu[0].parts[name] for name in states} == pytest.approx(states)
    assert found.gpu[2].parts["trainer's optimizer"] == pytest.approx(2 * WEIGHTS / shards)
    whole = plan("videozoomer", 16).gpu[0].total
    # of one GPU's shards nothing is gathered: two copies of a layer less
    gathered = 2 * 2 * found.job.shape.layer if shards == 1 else 0
    assert found.gpu[0].total == pytest.approx(whole + 4 * WEIGHTS * (1 / shards - 1 / 16) - gathered)
    assert found.verdict == ("fits" if shards >= 8 else "does not fit")


def test_fsdp_size_is_mended_first() -> None:
    # 61.8 GiB of states in place of 7.7
    found = plan("videozoomer", 16, f"{FSDP_SIZE}=2")
    assert found.gpu[0].total / GIB == pytest.approx(113, abs=0.5)
    assert found.findings[0].changes == (f"{FSDP_SIZE}=-1",)


def test_groups_that_leave_gpus_over() -> None:
    found = plan("videozoomer", 16, f"{FSDP_SIZE}=3")
    (wrong,) = [one for one in found.findings if "groups of 3" in one.text]
    assert (wrong.verdict, wrong.changes) == ("does not fit", (f"{FSDP_SIZE}=-1",))


def test_each_group_s_offloaded_weights_are_in_main_memory() -> None:
    offloaded = "actor_rollout_ref.actor.fsdp_config.param_offload=True"
    two, all_of_them = (plan("videozoomer", 16, offloaded, f"{FSDP_SIZE}={size}").host[1] for size in (2, -1))
    # a node's eight GPUs are four groups of two, or half of the one group
    assert (two.parts["weights"], all_of_them.parts["weights"]) == (4 * WEIGHTS, WEIGHTS / 2)
    # the reference model has a key of its own
    assert two.parts["reference model"] == all_of_them.parts["reference model"] == WEIGHTS / 2
    key = "actor_rollout_ref.ref.fsdp_config.fsdp_size=4"
    assert plan("videozoomer", 16, key).host[1].parts["reference model"] == 2 * WEIGHTS


def test_gpus_that_only_play_are_planned_by_themselves() -> None:
    """8 of the trainer, 8 of rollouts; verl's trainer has engines beside itself, too, which sleep."""
    found = plan("videozoomer", 16, *SEPARATE)
    job = found.job
    assert job.pool and (job.machines.gpus, job.pool.gpus, job.engines, job.nodes) == (8, 8, 8, 2)
    names = [phase.name for phase in found.gpu]
    assert names[1:] == [
        "handing weights over",
        "rollouts next to the trainer (validation)",
        "rollouts alone, weights arriving",
        "rollouts alone",
    ]
    training, _, beside, arriving, alone = (phase.parts for phase in found.gpu)
    assert training["weights"] == WEIGHTS / 8 and training["sleeping engine"] == 3 * GIB
    assert beside["trainer's optimizer"] == 2 * WEIGHTS / 8
    assert not [name for name in alone if "trainer" in name or name in ("weights", "optimizer", "gradients")]
    # the engine's share of 0.75, and the process that receives weights
    assert sum(alone.values()) == pytest.approx(0.75 * 80 * GIB + GIB)
    assert arriving["buckets"] == 3 * 2 * GIB and arriving["engine's weights"] == WEIGHTS / 2
    # 2048 episodes of 8 engines, and as many played ahead: more than the 128 of each
    assert found.engine.wanted == 128 and found.job.running == 4096
    assert [phase.name for phase in found.host][2] == "whose GPUs only play, in a step"


def test_what_is_played_ahead_is_there_too() -> None:
    """In main memory: frames of two batches, and the weights of the first of four updates beside the present ones."""
    together, ahead, separate = (
        plan("videozoomer", 16, *more).host[1].parts
        for more in ((), ("trainer.v1.trainer_mode=agentic_video_colocate_async",), SEPARATE)
    )
    frames = "frames of running episodes"
    assert ahead[frames] == separate[frames] == 2 * together[frames]
    queued = "TransferQueue, and what is fetched of it"
    assert 2 * ahead[queued] == 3 * together[queued]
    assert separate["weights of earlier updates"] == 2 * WEIGHTS and "weights of earlier updates" not in ahead
    each = plan("videozoomer", 16, *SEPARATE, "trainer.v1.separate_async.parameter_sync_step=1").host[1].parts
    assert each["weights of earlier updates"] == WEIGHTS


def test_the_memory_of_gpus_is_the_same_where_a_batch_is_played_ahead_on_them() -> None:
    mode = "trainer.v1.trainer_mode=agentic_video_colocate_async"
    assert plan("videozoomer", 16, mode).gpu == plan("videozoomer", 16).gpu


def test_what_mends_gpus_that_only_play() -> None:
    greedy = "actor_rollout_ref.rollout.gpu_memory_utilization=0.97"
    found = plan("videozoomer", 16, *SEPARATE, greedy)
    (tight,) = [one for one in found.findings if one.text.startswith("rollouts alone")]
    # what the engines beside the trainer can have, too
    assert tight.verdict == "tight" and tight.changes == ("actor_rollout_ref.rollout.gpu_memory_utilization=0.75",)


def test_too_few_gpus_that_only_play() -> None:
    found = plan("videozoomer", 16, *SEPARATE[:2], "actor_rollout_ref.rollout.n_gpus_per_node=2", SEPARATE[3])
    assert found.job.pool and (found.job.machines.gpus, found.job.pool.gpus) == (14, 2)
    four = "actor_rollout_ref.rollout.tensor_model_parallel_size=4"
    few = plan("videozoomer", 16, *SEPARATE[:2], "actor_rollout_ref.rollout.n_gpus_per_node=2", SEPARATE[3], four)
    assert [one for one in few.findings if "2 GPUs that only play can't be shared by engines of 4" in one.text]
    with pytest.raises(
        SetupError, match=r"^8 GPUs: actor_rollout_ref\.rollout\.nnodes .* take 8 .* none for the trainer$"
    ):
        plan("videozoomer", 8, *SEPARATE)


def test_lora_needs_neither_states_nor_a_reference_model() -> None:
    full, adapted = (plan("videozoomer", 1, f"actor_rollout_ref.model.lora_rank={rank}") for rank in (0, 32))
    assert full.gpu[0].parts["optimizer"] / adapted.gpu[0].parts["optimizer"] > 80
    assert "reference model" in full.host[1].parts and "reference model" not in adapted.host[1].parts
    # verl loads the whole shard before adapters are handed over, and vLLM backs its weights up while it sleeps
    assert adapted.gpu[1].parts["trainer's weights"] > 33e9
    assert adapted.host[1].parts["sleeping engines' weights"] == 2 * 8_292_166_656
    merged = plan("videozoomer", 1, "actor_rollout_ref.model.lora_rank=32", "actor_rollout_ref.model.lora.merge=True")
    assert "sleeping engines' weights" not in merged.host[1].parts


def test_models_are_taken_by_name() -> None:
    assert plan("videozoomer", 16, model="Qwen2.5-VL-3B").job.shape.text.hidden == 2048
    assert plan("videozoomer", 16, model="Qwen2.5-VL-32B").verdict == "does not fit"


def test_the_block_is_checked() -> None:
    with pytest.raises(SetupError, match=r"agentic_video\.plan\.frmes: unknown key; did you mean frames"):
        plan("videozoomer", 16, "+agentic_video.plan.frmes=3")
    with pytest.raises(SetupError, match="overview_frames must be from 0 to frames, got 90 of 88"):
        plan("videozoomer", 16, "agentic_video.plan.overview_frames=90")
    with pytest.raises(SetupError, match="says nothing about a typical episode"):
        plan("videozoomer", 16, "~agentic_video.plan")
