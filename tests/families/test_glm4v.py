"""What is particular to GLM-4.1V: its clips as the model itself takes them, and patches of verl and vLLM."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Glm4vConfig
from vllm.model_executor.models import glm4_1v

from agentic_video.families.glm4v import GlmRules, gathered_positions
from agentic_video.families.qwen_vl_inputs import one_moment
from agentic_video.families.registry import FAMILY_OF
from agentic_video.toyworld.model import ModelRecipe, build_model, build_tokenizer, chat_format_of
from agentic_video.training.inputs.model_inputs import model_inputs
from agentic_video.types.frame import Clip, Frame
from agentic_video.types.message import Message
from agentic_video.video.sizes import PixelBudget


def test_times_by_hand() -> None:
    old, new = (GlmRules(PixelBudget(1, 784), decimals=decimals) for decimals in (False, True))
    assert [rules.timestamp(12.96) for rules in (old, new)] == ["12", "13.0 seconds"]


def test_room_for_a_clip_by_hand() -> None:
    """A square image has 78 x 78 tokens at most, as 79 x 79 are more than 6144; a clip 30,000. As vLLM 0.24 counts."""
    bounds = PixelBudget(12_544, 9_633_792), PixelBudget(12_544, 47_040_000)
    rules = GlmRules(*bounds, clip_total=True)
    assert rules.most_image_tokens == 6084
    assert [rules.most_clip_tokens(length) for length in (4096, 32_768, 65_536)] == [6084, 4 * 6084, 30_000]
    assert GlmRules(*bounds, clip_total=True, decimals=True).most_clip_tokens(4096) == 30_000


def test_each_moment_is_a_picture() -> None:
    assert one_moment(torch.tensor([[2, 4, 6], [1, 2, 2]])).tolist() == [[1, 4, 6], [1, 4, 6], [1, 2, 2]]


def test_a_clip_is_to_the_model_what_its_own_processor_makes() -> None:
    """With the placeholder of images, and the video's own inputs."""
    tokenizer = build_tokenizer([], family="glm4v")
    model = build_model(tokenizer, ModelRecipe(family="glm4v")).eval()
    for parameter in model.parameters():
        parameter.data.mul_(4)
    family = FAMILY_OF["glm4v"]
    processor = family.tiny.processor(tokenizer)
    processor.config = model.config
    rng = np.random.default_rng(0)
    clip = Clip(tuple(Frame(n, 1.5 * n, rng.integers(0, 256, (56, 28, 3), np.uint8)) for n in range(5)))
    ids = torch.tensor(chat_format_of(model, tokenizer).opening_ids([Message("user", ("look", clip, "?"))]))
    positions, inputs = model_inputs(processor, ids, [clip])
    told = ids.masked_fill(ids == processor.video_token_id, processor.image_token_id)
    own = {name: inputs[name] for name in ("pixel_values_videos", "video_grid_thw")}
    row, joined = family.in_one_pass(processor, ids, inputs)
    assert torch.equal(row, told)
    with torch.no_grad():
        expected = model(input_ids=told[None], position_ids=positions[:, None], **own).logits
        given = {name: joined[name] for name in ("pixel_values", "image_grid_thw")}
        found = model(input_ids=row[None], position_ids=positions[:, None], **given).logits
    torch.testing.assert_close(found, expected)


def test_fsdp2_leaves_the_towers_positions_to_the_root() -> None:
    model = build_model(build_tokenizer([], family="glm4v"), ModelRecipe(family="glm4v"))
    held, embedding = model.model.visual.embeddings.position_embedding, model.get_input_embeddings()
    module: Any = SimpleNamespace(_select_fsdp2_wrap_targets=lambda model, names: [held, embedding])
    gathered_positions(module)
    assert module._select_fsdp2_wrap_targets(model, []) == [embedding]


def test_operations_are_counted_by_the_language_models_sizes() -> None:
    import verl  # noqa: F401 (loads the plugin)
    from verl.utils.flops_counter import ESTIMATE_FUNC

    whole = Glm4vConfig()
    counted = ESTIMATE_FUNC["glm4v"](whole, 10, [10], 1.0)
    # 6 operations a weight and token of the language model, 9.4e9 weights, and attention
    assert counted == pytest.approx(6 * 9.4e9 * 10 / 1e12, rel=0.01)


def test_vllm_takes_several_clips_with_their_times() -> None:
    FAMILY_OF["glm4v"].prepare_vllm()
    info: Any = object.__new__(glm4_1v.Glm4vProcessingInfo)
    assert info.get_supported_mm_limits() == {"image": None, "video": None}
    told = {"fps": 1.0, "frames_indices": [0.0, 1.3, 2.6], "total_num_frames": 3, "do_sample_frames": False}
    assert info._get_video_second_idx_glm46v(told, 3) == [0.0, 2.6]
