from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers import Qwen2VLImageProcessor
from transformers.video_utils import VideoMetadata
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.models.transformers.qwen2_vl import get_rope_index
from verl.utils import hf_processor

from agentic_video.families.base import UnkeptSizeError
from agentic_video.families.qwen_vl import QwenVL
from agentic_video.families.registry import family_of
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.toyworld.model import ModelRecipe, build_model, save_checkpoint
from agentic_video.training.inputs.model_inputs import (
    model_inputs,
)
from agentic_video.types.frame import Clip, Frame
from agentic_video.types.message import Message, Visual
from tests.families.processors import processor_of
from tests.toyworld.conftest import tokenizer_of

PROCESSOR = Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352)


def picture(seed: int, width: int = 56, height: int = 28) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def frame(seed: int, width: int = 56, height: int = 28) -> Frame:
    return Frame(seed, 0.0, picture(seed, width, height))


PROCESSORS = {
    "qwen2_5_vl": PROCESSOR,
    "qwen3_vl": Qwen2VLImageProcessor(
        patch_size=16, size={"shortest_edge": 1024, "longest_edge": 131_072}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    ),
}


@pytest.mark.parametrize("family", PROCESSORS)
def test_patches_and_sizes_equal_the_processors(family: str) -> None:
    """Of images as a store gives them: small, large, twice the same."""
    image_processor = PROCESSORS[family]
    processor = processor_of(image_processor, family=family)
    rules = family_of(processor).rules(processor)
    sizes = [rules.kept(*size) for size in ((448, 224), (28, 28), (448, 224), (30, 45), (1000, 700), (32, 64))]
    images = [picture(number, *size) for number, size in enumerate(sizes)]
    expected = image_processor(images=[Image.fromarray(image) for image in images], return_tensors="pt")
    made = family_of(processor).pixels(processor, {str(number): image for number, image in enumerate(images)}, {})
    patches = {key: some["pixel_values"] for key, some in made.items()}
    assert list(patches) == ["0", "1", "2", "3", "4", "5"]
    assert torch.equal(torch.cat(list(patches.values())), expected["pixel_values"])
    assert expected["pixel_values"].dtype == torch.float32
    found = family_of(processor).sizes(processor, [frame(number, *size) for number, size in enumerate(sizes)])
    assert torch.equal(found["image_grid_thw"], expected["image_grid_thw"])
    assert found["images_seqlens"].tolist() == [len(patch) for patch in patches.values()]


@pytest.mark.parametrize("family", PROCESSORS)
def test_what_the_processor_would_resize_is_refused(family: str) -> None:
    """Engine and trainer would resize it differently, and nothing would show it."""
    processor = processor_of(PROCESSORS[family], family=family)
    with pytest.raises(UnkeptSizeError, match="30x45"):
        family_of(processor).sizes(processor, [frame(0, 448, 224), frame(1, 30, 45)])
    with pytest.raises(UnkeptSizeError, match="1000x700"):
        family_of(processor).pixels(processor, {"a": picture(0, 448, 224), "b": picture(1, 1000, 700)}, {})


def test_positions_by_hand(checkpoint: Path) -> None:
    processor = hf_processor(str(checkpoint))
    pad = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    start = processor.tokenizer.convert_tokens_to_ids("<|vision_start|>")
    # a text token, the start of an image, an image of 2 x 1 merged patches, a text token
    ids = torch.tensor([5, start, pad, pad, 6])
    positions = family_of(processor).positions(processor, ids, {"image_grid_thw": torch.tensor([[1, 2, 4]])})
    assert positions.tolist() == [
        [0, 1, 2, 3, 4],  # of the text alone
        [0, 1, 2, 2, 4],  # time, height, width: the image begins at 2, and what follows goes on from its largest
        [0, 1, 2, 2, 4],
        [0, 1, 2, 3, 4],
    ]


@pytest.fixture(scope="module")
def any_processor(any_checkpoint: Path) -> Any:
    return hf_processor(str(any_checkpoint))


@given(
    grids=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=6),
    texts=st.lists(st.integers(0, 7), min_size=7, max_size=7),
)
def test_positions_equal_verls(any_processor: Any, grids: list[tuple[int, int]], texts: list[int]) -> None:
    """Images of any sizes, given in visual tokens, with any number of text tokens between them, none included."""
    processor = any_processor
    grids = grids if isinstance(family_of(processor), QwenVL) else []  # the others count tokens, whatever is shown
    start = processor.tokenizer.convert_tokens_to_ids("a")
    pad = getattr(processor, "image_token_id", None)
    ids = [5] * texts[0]
    for (height, width), text in zip(grids, texts[1:], strict=False):
        ids += [start, *[pad] * (height * width), *[5] * text]
    row = torch.tensor([ids or [5]])
    sizes = {"image_grid_thw": torch.tensor([[1, 2 * height, 2 * width] for height, width in grids])} if grids else {}
    worker: Any = SimpleNamespace(processor=processor)
    expected = AgentLoopWorker._compute_position_ids(
        worker, row, torch.ones_like(row), {**sizes, "mm_token_type_ids": torch.zeros_like(row)}
    )
    found = family_of(processor).positions(processor, row[0], sizes)
    assert torch.equal(found, expected.squeeze(0)) and found.dtype == expected.dtype


FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm4v", "glm4v_46")
"""GLM-4.6V has GLM-4.1V's ``model_type`` and another processor."""


@pytest.fixture(scope="module")
def processors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The processors of the tiny models, as verl loads them."""
    found = {}
    for name in FAMILIES:
        family = name.removesuffix("_46")
        folder, tokenizer = tmp_path_factory.mktemp(name), tokenizer_of("videozoomer", family)
        save_checkpoint(build_model(tokenizer, ModelRecipe(family=family)), tokenizer, folder)
        if name == "glm4v_46":
            file = folder / "processor_config.json"
            file.write_text(file.read_text().replace("Glm4v", "Glm46V"))
        found[name] = hf_processor(str(folder))
    return found


def timed(number: int, time: float, width: int, height: int) -> Frame:
    return Frame(number, time, picture(number, width, height))


def clip(start: float, every: float, count: int, width: int, height: int) -> Clip:
    return Clip(tuple(timed(int(start) + number, start + every * number, width, height) for number in range(count)))


def mixed(side: int) -> list[Visual]:
    """Clips of an odd and an even number of frames, at times that aren't whole, with images among them."""
    return [
        clip(0.0, 1.3, 5, 2 * side, side),
        timed(9, 9.0, 2 * side, 2 * side),
        clip(40.0, 0.5, 4, side, side),
        clip(60.0, 2.25, 2, side, 2 * side),
        timed(3, 1.0, side, side),
    ]


def hf_output(processor: Any, shown: Sequence[Visual]) -> Any:
    """What the Hugging Face processor makes of a conversation, run directly."""
    content = [{"type": "text", "text": "look <"}]
    for visual in shown:
        kind = "video" if isinstance(visual, Clip) else "image"
        content += [{"type": kind}, {"type": "text", "text": " 1> and"}]
    text = processor.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    clips = [visual for visual in shown if isinstance(visual, Clip)]
    told = {
        "videos": [np.stack([frame.image for frame in item.frames]) for item in clips],
        "video_metadata": [
            VideoMetadata(total_num_frames=len(item.frames), fps=1.0, frames_indices=list(item.times)) for item in clips
        ],
        "do_sample_frames": False,
    }
    return processor(
        text=[text],
        images=[Image.fromarray(visual.image) for visual in shown if not isinstance(visual, Clip)] or None,
        return_tensors="pt",
        **(told if clips else {}),
    )


def told_alone(family: str, shown: Sequence[Visual]) -> list[list[Visual]]:
    """Conversations that the processor can write: GLM's takes the placeholders of images for those of clips."""
    if not family.startswith("glm"):
        return [list(shown)]
    return [[visual for visual in shown if isinstance(visual, Clip) == clips] for clips in (True, False)]


def engine_ids(processor: Any, output: Any) -> list[int]:
    """Ids of an output in which clips have a placeholder of their own: GLM's processors write that of images."""
    ids: torch.Tensor = output["input_ids"][0].masked_fill(
        output["mm_token_type_ids"][0] == 2, processor.video_token_id
    )
    return ids.tolist()


def own_ids(processor: Any, shown: Sequence[Visual]) -> list[int]:
    parts: list[Any] = ["look <"]
    for visual in shown:
        parts += [visual, " 1> and"]
    return ChatFormat.of(processor).opening_ids([Message("user", tuple(parts))])


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_patches_of_clips_equal_the_processors(family: str, processors: dict[str, Any]) -> None:
    processor = processors[family]
    shown = mixed(processor.image_processor.patch_size * 2)
    for told in told_alone(family, shown):
        expected, ids = hf_output(processor, told), own_ids(processor, told)
        assert ids == engine_ids(processor, expected)
        _, inputs = model_inputs(processor, torch.tensor(ids), told)
        names = {"pixel_values", "pixel_values_videos", "image_grid_thw", "video_grid_thw"} & set(expected)
        assert names == {name for name in inputs if name.startswith("pixel") or name.endswith("thw")}
        for name in names:
            assert torch.equal(inputs[name], expected[name]), name
    ids = own_ids(processor, shown)
    positions, inputs = model_inputs(processor, torch.tensor(ids), shown)
    assert positions.shape == (4, len(ids)) and positions[0].tolist() == list(range(len(ids)))
    # 2 * mean distance of frames; 5 frames are 3 moments
    assert inputs["second_per_grid_ts"].tolist() == [2.6, 1.0, 4.5]
    assert inputs["video_grid_thw"][:, 0].tolist() == [3, 2, 1]
    # patches of each moment: images, then clips
    assert inputs["images_seqlens"].tolist() == [16, 4, 8, 8, 8, 4, 4, 8]


@pytest.mark.parametrize("family", FAMILIES)
def test_clips_that_the_processor_would_resize(family: str, processors: dict[str, Any]) -> None:
    """Placeholders are its own all the same, and no patches are made."""
    processor = processors[family]
    shown: list[Visual] = [clip(0.0, 1.0, 3, 300, 170), clip(0.0, 1.0, 4, 45, 33)]
    expected, ids = hf_output(processor, shown), own_ids(processor, shown)
    assert ids == engine_ids(processor, expected)
    with pytest.raises(UnkeptSizeError):
        model_inputs(processor, torch.tensor(ids), shown)


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5", "glm4v", "glm4v_46"])
def test_positions_with_clips_are_the_model_s(family: str, processors: dict[str, Any]) -> None:
    processor = processors[family]
    shown = mixed(2 * processor.image_processor.patch_size)
    ids = torch.tensor(own_ids(processor, shown))
    positions, inputs = model_inputs(processor, ids, shown)
    kinds = (ids == processor.image_token_id).int() + 2 * (ids == processor.video_token_id).int()
    sizes = {name: inputs[name] for name in ("image_grid_thw", "video_grid_thw")}
    expected, _ = processor.get_rope_index(ids[None], mm_token_type_ids=kinds[None], **sizes)
    assert torch.equal(positions[1:], expected[:, 0])


def test_positions_of_qwen2_5_with_clips_are_those_of_vllm_and_of_the_model_s_first_code(
    processors: dict[str, Any],
) -> None:
    """vLLM's own method plays the episodes; verl has the code that the model was published with."""
    from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VLForConditionalGeneration

    processor = processors["qwen2_5_vl"]
    shown = mixed(28)
    output = hf_output(processor, shown)
    ids = output["input_ids"][0]
    positions, inputs = model_inputs(processor, ids, shown)

    def runs(token: int) -> list[int]:
        """Where runs of a placeholder begin."""
        return [at for at in range(1, len(ids)) if ids[at] == token != ids[at - 1]]

    def feature(modality: str, offset: int, number: int) -> Any:
        names = [f"{modality}_grid_thw", *(["second_per_grid_ts"] if modality == "video" else [])]
        data = {name: SimpleNamespace(data=inputs[name][number]) for name in names}
        return SimpleNamespace(modality=modality, mm_position=SimpleNamespace(offset=offset), data=data)

    features = [
        feature(kind, offset, number)
        for kind, token in (("image", processor.image_token_id), ("video", processor.video_token_id))
        for number, offset in enumerate(runs(token))
    ]
    engine: Any = SimpleNamespace(config=processor.config)
    engine.iter_mm_grid_thw = lambda given: Qwen2_5_VLForConditionalGeneration.iter_mm_grid_thw(engine, given)
    played, _ = Qwen2_5_VLForConditionalGeneration.get_mrope_input_positions(engine, ids.tolist(), features)
    assert torch.equal(positions[1:], played)

    published = get_rope_index(
        processor,
        ids,
        image_grid_thw=inputs["image_grid_thw"],
        video_grid_thw=inputs["video_grid_thw"],
        second_per_grid_ts=inputs["second_per_grid_ts"],
    )
    assert torch.equal(positions[1:], published)
