"""Operations of passes, by hand: Qwen2.5-VL-7B has 28 layers of 233,057,792 parameters, 28 heads of 128 numbers, a head
of 152,064 x 3,584, and 32 vision blocks of 19,702,200 parameters."""

from dataclasses import replace

import pytest

from agentic_video.planning.memory import Head, Precision
from agentic_video.planning.shapes import published_shapes
from agentic_video.planning.work import Work, attention, optimizer, scoring, training

SHAPE = published_shapes()["Qwen/Qwen2.5-VL-7B-Instruct"]
LAYERS, HEAD, BLOCKS = 28 * 233_057_792, 152_064 * 3584, 32 * 19_702_200
FUSED = Head(fused=True, entropy=True)


def test_attention_of_what_comes_after_a_prefix() -> None:
    # of 3 tokens after 2 the first sees half of itself and the two, and so on: 4 x 3 x (2 + 1.5) for each number
    assert attention(SHAPE.text, 3, 2) == 4 * 3 * 3.5 * 28 * 128 * 28
    assert attention(SHAPE.text, 2) + attention(SHAPE.text, 3, 2) == attention(SHAPE.text, 5)


def test_a_forward_pass() -> None:
    found = scoring(SHAPE, 1000, 512)
    assert found.decoder == 2 * 1000 * (LAYERS + HEAD) + 2 * 1000**2 * 3584 * 28
    assert found.tower == 2 * 512 * BLOCKS
    assert found.bytes == 64 * 1000 * 152_064


def test_an_update_runs_layers_again_and_makes_two_gradients() -> None:
    found = training(SHAPE, 1000, 512, Precision(), FUSED, checkpointed=True)
    assert found.decoder == 8 * 1000 * (LAYERS + HEAD) + 2 * 1000**2 * 3584 * 28 * 4.5
    assert found.tower == 8 * 512 * BLOCKS
    assert found.bytes == 1000 * 152_064 * 218 + 1000 / 512 * HEAD * 2 * 4
    kept = training(SHAPE, 1000, 512, Precision(), FUSED, checkpointed=False)
    assert found.decoder - kept.decoder == 2 * 1000 * LAYERS + attention(SHAPE.text, 1000)
    assert kept.tower == 6 * 512 * BLOCKS


def test_an_unfused_head_keeps_its_logits() -> None:
    fused, unfused = (
        training(SHAPE, 1000, 0, Precision(), Head(fused=fused, entropy=True), checkpointed=True)
        for fused in (True, False)
    )
    assert fused.decoder - unfused.decoder == 2 * 1000 * HEAD


def test_frozen_parts_have_no_gradients_of_weights() -> None:
    whole, frozen, adapters = (
        training(SHAPE, 1000, 512, precision, FUSED, checkpointed=True)
        for precision in (Precision(), Precision(frozen_vision=True), Precision(lora_rank=8))
    )
    assert frozen.tower == adapters.tower == whole.tower / 4 and frozen.decoder == whole.decoder
    assert whole.decoder - adapters.decoder == 2 * 1000 * LAYERS
    assert whole.bytes - adapters.bytes == pytest.approx(3 * 1000 / 512 * HEAD * 2)


def test_a_token_s_experts_alone() -> None:
    shape = published_shapes()["Qwen/Qwen3.5-35B-A3B"]
    idle = shape.text.idle_parameters
    assert scoring(shape, 10, 0).decoder < 2 * 10 * (shape.decoder - idle + shape.embedding) * 1.01 and idle > 0


def test_the_optimizer_s_step() -> None:
    assert optimizer(SHAPE, Precision()) == Work(bytes=96 * SHAPE.parameters)
    assert optimizer(SHAPE, Precision(2, lora_rank=8)).bytes == 48 * SHAPE.adapters(8)


def test_work_adds_up() -> None:
    assert Work(1, 2, 3) + Work(1, 1, 1) * 2 == Work(3, 4, 5)
    assert replace(Work(), tower=1.0) == Work(0, 1, 0)
