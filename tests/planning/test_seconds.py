"""Seconds of a step by hand, with round rates: of VideoZoomer's published step unless a config says otherwise.

128 questions x 16 rollouts on 16 GPUs; an episode has 88 frames of 448 x 224, 64 of them the overview; 15,320 tokens.
"""

from dataclasses import replace

import pytest

from agentic_video.planning import seconds
from agentic_video.planning.job import RunSpec
from agentic_video.planning.plan import engine_of
from agentic_video.planning.rates import Codec, Rate, Rates, shipped_rates
from tests.planning.plans import plan

LAYER, HEAD, TOWER = 233_057_792, 152_064 * 3584, 32 * 19_702_200
OWN = 15_320 - 64 * 140 - 2000
"""Tokens of an episode that its group doesn't share."""
SLOW = Rates(*(Rate(value, "measured", "") for value in (4e14, 2e14, 4e12, 2e14, 4e13, 2e10, 1e10, 0.2)))
FSDP = "actor_rollout_ref.actor.fsdp_config"


def trained(job: RunSpec) -> dict[str, float]:
    return {name: part.seconds for name, part in seconds.trainer(job, SLOW).items()}


def rolled(job: RunSpec) -> dict[str, float]:
    return {name: part.seconds for name, part in seconds.rollouts(job, 1e9, SLOW).items()}


def test_passes_of_the_trainer(job: RunSpec) -> None:
    parts = trained(job)
    # 128 sequences a GPU: matrices two operations a parameter, causal attention half of all pairs
    forward = 28 * (2 * LAYER * 15_320 + 2 * 15_320**2 * 3584) + 2 * HEAD * 15_320
    tower = 2 * TOWER * 88 * 512
    logits = 15_320 * 152_064
    scored = 128 * (forward / 4e14 + tower / 2e14 + 64 * logits / 4e12)
    assert parts["old log-probabilities"] == parts["reference's log-probabilities"] == pytest.approx(scored)
    update = 28 * (8 * LAYER * 15_320 + 9 * 15_320**2 * 3584) + 8 * HEAD * 15_320
    moved = 218 * logits + 15_320 / 512 * HEAD * 2 * 4
    assert parts["updates"] == pytest.approx(128 * (update / 4e14 + 4 * tower / 2e14 + moved / 4e12))
    # four mini-batches of 32 questions: 96 bytes of 8.29 billion parameters each, shared by 16
    assert parts["optimizer's steps"] == pytest.approx(4 * 96 * job.shape.parameters / 16 / 4e12)


def test_only_the_passes_that_verl_makes(job: RunSpec) -> None:
    bypassed = plan("videozoomer", 16, "algorithm.rollout_correction.bypass_mode=True").job
    assert "old log-probabilities" not in trained(bypassed) and bypassed.passes == job.passes - 1 == 2
    assert "reference's log-probabilities" not in trained(plan("framethinker", 16).job)
    twice = trained(replace(job, epochs=2))
    assert twice["updates"] == 2 * trained(job)["updates"]
    assert twice["optimizer's steps"] == 2 * trained(job)["optimizer's steps"]
    # half as large mini-batches: twice as many optimizer steps on the same sequences
    halves = trained(replace(job, mini_batch=16))
    assert halves["optimizer's steps"] == 2 * trained(job)["optimizer's steps"]
    assert halves["updates"] == trained(job)["updates"]


def test_gpus_that_share_a_sequence_run_its_tower_each(job: RunSpec) -> None:
    more = trained(replace(job, ulysses=2))["old log-probabilities"] - trained(job)["old log-probabilities"]
    assert more == pytest.approx(128 * 2 * TOWER * 88 * 512 / 2e14)


def test_what_is_offloaded_passes_the_bus(job: RunSpec) -> None:
    whole = 4 * job.shape.parameters / 16
    # the reference comes anew for each micro-batch: 128 sequences, 53,248 tokens at a time
    assert seconds.offloaded_bytes(job) == 37 * whole
    kept = replace(job, use_kl=False)
    assert seconds.offloaded_bytes(kept) == 0 and "to and from main memory" not in trained(kept)
    # weights around old log-probabilities, updates and the hand-over, two moments around updates, there and back
    away = replace(kept, param_offload=True, optimizer_offload=True)
    assert seconds.offloaded_bytes(away) == (2 * 3 + 2 * 2) * whole
    assert trained(away)["to and from main memory"] == pytest.approx(10 * whole / 2e10)
    # layers come for old log-probabilities and twice for an update, gradients go, each micro-batch
    assert seconds.offloaded_bytes(replace(away, streamed=True)) == 37 * (3 + 1) * whole


def test_adapters_reference_is_the_model_without_them() -> None:
    job = plan("videozoomer", 1, "+profile=single", "actor_rollout_ref.actor.use_kl_loss=True").job
    assert job.use_kl and not job.reference and "reference's log-probabilities" in trained(job)
    without = replace(job, use_kl=False)
    both = 2 * 4 * (job.shape.parameters + job.shape.adapters(32))
    assert seconds.offloaded_bytes(job) - seconds.offloaded_bytes(without) == both


def test_weights_to_engines(job: RunSpec) -> None:
    assert trained(job)["weights to engines"] == 4 * job.shape.parameters / 1e10
    assert trained(job)["processes, at least"] == 1 / 0.2


def test_a_group_s_prompt_is_computed_once(job: RunSpec) -> None:
    assert job.prefix_cached
    shared = 64 * 140 + 2000

    def tokens(new: int, old: int = 0) -> float:
        return 28 * (2 * LAYER * new + 4 * new * (old + new / 2) * 3584)

    assert seconds.prompt_operations(job) == pytest.approx(128 * tokens(shared) + 2048 * tokens(OWN, shared))
    tower = 2 * TOWER * 128 * (64 + 16 * 24) * 512  # each distinct frame's patches
    assert rolled(job)["engines: prompts"] == pytest.approx((seconds.prompt_operations(job) + tower) / 16 / 2e14)
    plain = plan("videozoomer", 16, "actor_rollout_ref.rollout.enable_prefix_caching=False").job
    assert plain.episode.turns == 3  # the second and the third compute the overview again
    assert seconds.prompt_operations(plain) == pytest.approx(2048 * (tokens(15_320) + 2 * tokens(64 * 140)))


def test_the_bound_of_replies(job: RunSpec) -> None:
    """16 engines of 128 sequences say 1,000 tokens each: 1,000 passes read 7.07 billion parameters in bfloat16.

    Each token reads 57,344 bytes of all tokens before it, on average half way from the overview to the end.
    """
    weights = 2 * (28 * LAYER + HEAD + 3584)
    read = 1000 * weights + 128 * 1000 * 57_344 * (64 * 140 + 15_320) / 2
    assert seconds.reply_bytes(job, 1e9) == pytest.approx(read)
    assert rolled(job)["engines: replies, at least"] == pytest.approx(read / 4e12)
    # half as many sequences at a time, given or held by the cache: twice as many passes
    assert seconds.reply_bytes(replace(job, sequences=64), 1e9) == pytest.approx(read + 1000 * weights)
    assert seconds.reply_bytes(job, 64) == pytest.approx(read + 1000 * weights)
    # 4 engines of 512 sequences, 128 at a time: each GPU reads as much of their caches, and a quarter of the weights in
    # four times as many passes
    assert seconds.reply_bytes(replace(job, tensor_parallel=4), 1e9) == pytest.approx(read)


def test_decoding_by_codec_and_height(job: RunSpec) -> None:
    def busy(height: int, codec: Codec = "h264", searched: int = 0) -> seconds.Estimate:
        changed = replace(job.episode, source_height=height, source_codec=codec, searched_frames=searched)
        return seconds.decoding(replace(job, episode=changed))

    # two nodes of 32 decoders; two decoders took 1,186 ms for 64 frames and 79 ms for 16
    overview, called = 128 * 64, 2048 * 24
    assert job.decoders == 32
    small, large = busy(360), busy(1080)
    assert small.seconds == pytest.approx(2 * (overview * 1.186 / 64 + called * 0.079 / 16) / 64)
    assert (small.kind, large.kind, busy(720).kind) == ("measured", "measured", "derived")
    # 720p has 4 times the pixels of 360p, 1080p 9 times: three eighths of the way
    assert busy(720).seconds == pytest.approx(small.seconds + 3 / 8 * (large.seconds - small.seconds))
    assert busy(1080, "hevc").seconds > busy(1080, "av1").seconds > large.seconds
    searched = busy(360, searched=2048).seconds - small.seconds
    assert searched == pytest.approx(2 * 128 * 2048 * 1.186 / 64 / 64)


def test_a_retriever_s_encoder_is_counted_where_a_system_searches(job: RunSpec) -> None:
    found = plan("timesearch", 16).job
    assert found.retriever == "ViT-SO400M-14-SigLIP-384" and found.episode.searched_frames == 2048
    # 4 questions of 2,048 frames on the encoders of two nodes
    assert rolled(found)["retrieval's encoder"] == pytest.approx(4 * 2048 / 2 * 670.35e9 / 4e13)
    assert "retrieval's encoder" not in rolled(job)


def test_what_a_step_takes(job: RunSpec) -> None:
    held = engine_of(job).typical
    found = seconds.step_seconds(job, held, shipped_rates())
    engines = [part.seconds for name, part in found.rollouts.items() if "engines" in name]
    assert len(engines) == 2 and found.rolling == sum(engines)
    assert found.total == found.rolling + found.training
    # a slow decoder is what all wait for
    far = replace(job, episode=replace(job.episode, source_height=2160))
    slow = seconds.step_seconds(far, held, shipped_rates())
    assert slow.rolling == slow.rollouts["decoding"].seconds > found.rolling
    apart = replace(found, apart=True)
    assert apart.total == max(apart.rolling, apart.training)


def test_an_estimate_says_how_it_is_known(job: RunSpec) -> None:
    found = seconds.step_seconds(job, 1e9, shipped_rates())
    kinds = {name: part.kind for parts in (found.rollouts, found.trainer) for name, part in parts.items()}
    assert kinds["updates"] == kinds["engines: prompts"] == "derived"
    assert kinds["weights to engines"] == kinds["engines: replies, at least"] == "guessed"
    assert kinds["vLLM's preprocessing"] == kinds["processes, at least"] == "measured"
