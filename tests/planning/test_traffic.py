"""What a step moves and keeps, against sums by hand: of VideoZoomer's published step unless a config says otherwise.

128 questions x 16 rollouts; an episode has 88 frames of 448 x 224, 64 of them the overview, and 15,320 tokens.
"""

import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

from agentic_video.planning import traffic
from agentic_video.planning.job import RunSpec
from agentic_video.training.inputs.references import SequenceImages
from agentic_video.types.frame import ImageRef, Origin
from agentic_video.utils.units import GIB
from agentic_video.video.store_config import StoreConfig
from tests.planning.plans import plan

FRAME = 3 * 448 * 224
PATCHES = 512 * 1176 * 4


def moved(job: RunSpec) -> dict[str, float]:
    return {hop.name: hop.bytes for hop in traffic.hops(job)}


def test_what_a_step_of_videozoomer_moves(job: RunSpec) -> None:
    found = moved(job)
    assert found["frame stores to workers, in shared memory"] == 2048 * 88 * FRAME == pytest.approx(54.3e9, rel=0.001)
    # each question's overview, and 24 called frames of each of its rollouts
    assert found["frame stores to engines"] == 128 * (64 + 16 * 24) * FRAME == pytest.approx(17.3e9, rel=0.01)
    assert job.typical == 3000 + 88 * (128 + 12) == 15_320
    assert found["into TransferQueue"] == 2048 * (15_320 * 72 + 88 * 100) == pytest.approx(2.28e9, rel=0.01)
    assert found["out of TransferQueue, 3 times"] == 3 * found["into TransferQueue"]
    # 128 sequences a rank are 3.4 GB, more than it keeps: all of them in each of three passes
    # once a rank; without keeping anything it would be 3 x 128 x 88 frames
    assert found["frame stores to the trainer, at most"] == 16 * 128 * 88 * FRAME


def test_what_stock_verl_would_move(job: RunSpec) -> None:
    stock = {hop.name: hop.bytes for hop in traffic.stock_hops(job)}
    assert stock["into TransferQueue"] == 2048 * 88 * PATCHES == pytest.approx(434e9, rel=0.01)
    assert stock["out of TransferQueue, 3 times"] == 3 * stock["into TransferQueue"]
    # six turns would resend 64 + 24 x turn / 5 frames
    turns = job.episode.turns
    shown = sum(64 + 24 * turn / (turns - 1) for turn in range(turns))
    assert stock["workers to vLLM, each turn again"] == pytest.approx(2048 * shown * FRAME)


def test_a_rank_fetches_once_what_it_keeps(job: RunSpec) -> None:
    # 128 sequences of 128 questions on each of 16 ranks: 128 overviews of 64 frames and 128 x 24 called frames, 3.4 GB
    assert traffic.rank_bytes(job) == (128 * 64 + 128 * 24) * FRAME
    # 8 questions x 8 rollouts on 16 ranks: 4 sequences each, of as many questions
    small = replace(job, questions=8, rollouts=8)
    assert traffic.rank_bytes(small) == 4 * 88 * FRAME
    # on one rank 64 sequences of 8 questions: 8 overviews and 64 x 24 called frames, 617 MB
    alone = replace(small, machines=replace(job.machines, gpus=1))
    assert traffic.rank_bytes(alone) == (8 * 64 + 64 * 24) * FRAME
    # a rank of a node of 32 GiB keeps 1 GiB, and 128 sequences of 16 questions are 1.2 GB: all is wanted anew
    poor = replace(alone, questions=16, machines=replace(alone.machines, host_bytes=32 * GIB))
    assert traffic.rank_bytes(poor) == 3 * 128 * 88 * FRAME


def test_ranks_that_share_a_sequence_fetch_it_each(job: RunSpec) -> None:
    small = replace(job, questions=32)
    # 32 sequences of 32 questions, shared 128 of 32
    assert traffic.rank_bytes(small) == 32 * 88 * FRAME
    assert traffic.rank_bytes(replace(small, ulysses=4)) == (32 * 64 + 128 * 24) * FRAME


@given(questions=st.integers(1, 300), rollouts=st.integers(1, 16), gpus=st.sampled_from([1, 4, 8, 16, 64]))
def test_no_hop_of_pixels_is_more_than_stock_verl_s(job: RunSpec, questions: int, rollouts: int, gpus: int) -> None:
    """A frame's patches are eight times its bytes, so that even fetching all of it in each pass is less."""
    some = replace(job, questions=questions, rollouts=rollouts, machines=replace(job.machines, gpus=gpus))
    found = moved(some)
    stock = {hop.name: hop.bytes for hop in traffic.stock_hops(some)}
    assert found["frame stores to engines"] <= found["frame stores to workers, in shared memory"]
    assert found["into TransferQueue"] < stock["into TransferQueue"] / 100
    ranks_sequences = -(-some.episodes // gpus) * gpus  # the last rank's share is rounded up
    assert found["frame stores to the trainer, at most"] <= some.passes * ranks_sequences * 88 * FRAME


def test_main_memory_of_a_step(job: RunSpec) -> None:
    parts = traffic.host_parts(job)
    assert parts["frames of running episodes"] == 1024 * 88 * FRAME
    assert parts["TransferQueue, and what is fetched of it"] == 2 * 1024 * (15_320 * 72 + 88 * 100)
    assert parts["groups beyond the batch, at most"] == 1024 * (88 * FRAME + 15_320 * 72 + 88 * 100)
    assert parts["images that the trainer keeps"] == 8 * 4 * GIB  # a 32nd of the node
    assert parts["engines' processed pictures"] == 8 * 16 * GIB
    assert "groups beyond the batch, at most" not in traffic.host_parts(replace(job, surplus=False))


def test_what_is_streamed_lies_in_main_memory_with_its_gradients(job: RunSpec) -> None:
    streamed = plan("videozoomer", 16, "actor_rollout_ref.actor.fsdp_config.offload_policy=True").job
    assert streamed.streamed and not job.streamed
    parts = traffic.host_parts(streamed)
    # float32, half of 16 GPUs': of gradients as much as of weights, of AdamW's moments twice as much
    assert parts["gradients"] == parts["weights"] == parts["optimizer"] / 2 == job.shape.parameters * 4 / 2
    assert "gradients" not in traffic.host_parts(job)


def test_what_a_group_s_rollouts_share(job: RunSpec) -> None:
    # 64 frames of 128 tokens and 12 around each, and 2,000 tokens that nobody said
    assert traffic.overview_tokens(job) == 64 * 140
    assert traffic.shared_tokens(job) == 64 * 140 + 2000
    own = replace(job, episode=replace(job.episode, overview_frames=0))
    assert traffic.shared_tokens(own) == 2000
    short = replace(job, longest=5000)
    assert traffic.shared_tokens(short) == traffic.overview_tokens(short) == 5000


def test_a_node_s_decoders_may_need_as_much_as_their_key_says(job: RunSpec) -> None:
    # auto: as much as the store keeps (2 GiB by default; a 16th of the memory, up to 32 GiB, on a cluster), at most 8
    assert traffic.host_parts(job)["decoders, at most"] == 8 * GIB < job.store_bytes
    few = plan("videozoomer", 16, "agentic_video.frame_store.decode_bytes=1000").job
    assert traffic.host_parts(few)["decoders, at most"] == 1000


def test_an_engine_s_pictures(job: RunSpec) -> None:
    pictures = traffic.engine_pictures(job)
    # 16 engines, 8 questions each; vLLM keeps patches in bfloat16
    assert (pictures.holds, pictures.wants) == (16 * GIB // (PATCHES // 2), 8 * (64 + 16 * 24)) == (14_266, 3584)
    assert pictures.bytes == 3584 * PATCHES // 2


def test_a_reference_s_bytes() -> None:
    path, node = "/shared/videos/a-video-of-a-data-set.mp4", "a" * 56
    refs = tuple(ImageRef(f"{index:032x}", 448, 224, Origin(path, 30 * index, (448, 224)), node) for index in range(88))
    each = len(pickle.dumps(SequenceImages(refs, StoreConfig(0)))) / 88
    assert 0.8 * traffic.REFERENCE <= each <= traffic.REFERENCE


def test_a_token_s_bytes() -> None:
    """What verl puts of a scored sequence whose prompt is a single token, as good as all of them a response."""
    count = 1000
    output = AgentLoopOutput(
        prompt_ids=[1],
        response_ids=[2] * count,
        response_mask=[1] * count,
        response_logprobs=[0.0] * count,
        reward_score=1.0,
        num_turns=2,
        metrics=AgentLoopMetrics(),
    )
    field = output.as_dict()
    field["loss_mask"] = field["response_mask"]
    field["input_ids"] = torch.cat([field["prompts"], field["responses"]])
    field["position_ids"] = torch.zeros(4, count + 1, dtype=torch.int64)
    stored = sum(one.nbytes for one in field.values() if isinstance(one, torch.Tensor))
    assert stored == pytest.approx(count * traffic.TOKEN, rel=0.001)
