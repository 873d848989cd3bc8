from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

from agentic_video.families.registry import FAMILIES
from agentic_video.training.engines.actor import VideoEngine, in_one_pass, sequence_inputs, with_pixels
from agentic_video.training.inputs.references import IMAGES
from agentic_video.types.frame import Frame
from tests.families.processors import processor_of
from tests.training.programs import result_of
from tests.training.updates import SIZES
from tests.training.workers import sequence_images


def test_verl_takes_this_engine_for_policies_and_its_own_for_values() -> None:
    for backend in ("fsdp", "fsdp2"):
        assert EngineRegistry.get_engine_cls("language_model", backend) is VideoEngine
        assert EngineRegistry.get_engine_cls("value_model", backend) is FSDPEngineWithValueHead
    assert issubclass(VideoEngine, FSDPEngineWithLMHead)


def test_patches_take_the_place_of_references() -> None:
    first, second = (Frame(0, 0.0, np.full((28, 28, 3), value, np.uint8)) for value in (1, 2))
    grid = torch.tensor([[1, 2, 2]])
    rows = [
        {IMAGES: sequence_images([first, second]).pack(), "image_grid_thw": grid.repeat(2, 1)},
        {},
        {"pixel_values": torch.zeros(4, 3), "image_grid_thw": grid},
        {IMAGES: sequence_images([second]).pack(), "image_grid_thw": grid},
    ]
    batch = TensorDict({"input_ids": torch.zeros(4, 1)}, batch_size=[4])
    tensordict_utils.assign_non_tensor_stack(batch, "multi_modal_inputs", rows)
    pixels = {first.key: torch.ones(4, 3), second.key: torch.full((4, 3), 2.0)}
    made = {key: {"pixel_values": patches} for key, patches in pixels.items()}
    filled = sequence_inputs(with_pixels(FAMILIES[0], batch, made))
    assert [len(item) for item in filled] == [2, 0, 2, 2]
    values = [item["pixel_values"][:, 0].tolist() for item in filled if item]
    assert values == [[1.0] * 4 + [2.0] * 4, [0.0] * 4, [2.0] * 4]
    assert [set(item) for item in sequence_inputs(batch)] == [set(item) for item in rows]  # as it was
    assert sequence_inputs(TensorDict({}, batch_size=[4])) == []


IMAGE, VIDEO = 8, 9


def test_clips_go_through_the_model_as_images() -> None:
    """Patches and sizes in the order of the placeholders, whether a clip has one run of them or several."""
    ids = [
        [1, VIDEO, VIDEO, 2, IMAGE, 3, VIDEO, VIDEO],  # a clip, an image, a clip
        [1, 2],
        [IMAGE, 1, VIDEO, 5, VIDEO, 5, VIDEO, IMAGE],  # an image, a clip in three runs, an image
        [IMAGE, 1],
    ]
    grid, moments = torch.tensor([[1, 2, 2]]), torch.tensor([[2, 2, 2]])

    def patches(*values: int) -> torch.Tensor:
        return torch.tensor(values).repeat_interleave(4).float()[:, None]

    rows = [
        {
            "pixel_values": patches(5),
            "image_grid_thw": grid,
            "images_seqlens": torch.tensor([4] * 5),
            "pixel_values_videos": patches(1, 2, 3, 4),
            "video_grid_thw": moments.repeat(2, 1),
            "second_per_grid_ts": torch.tensor([1.0, 2.0]),
        },
        {},
        {
            "pixel_values": patches(6, 7),
            "image_grid_thw": grid.repeat(2, 1),
            "pixel_values_videos": patches(1, 2, 3),
            "video_grid_thw": torch.tensor([[3, 2, 2]]),
            "second_per_grid_ts": torch.tensor([1.0]),
        },
        {"pixel_values": patches(9), "image_grid_thw": grid, "images_seqlens": torch.tensor([4])},
    ]
    jagged = torch.nested.nested_tensor([torch.tensor(row) for row in ids], layout=torch.jagged)
    batch = TensorDict({"input_ids": jagged}, batch_size=[4])
    tensordict_utils.assign_non_tensor_stack(batch, "multi_modal_inputs", rows)
    processor = processor_of(SimpleNamespace(merge_size=2))
    processor.image_token_id, processor.video_token_id = IMAGE, VIDEO
    made = in_one_pass(batch, processor)
    filled = sequence_inputs(made)
    names = ["image_grid_thw", "images_seqlens", "pixel_values"]
    assert [sorted(item) for item in filled] == [names, [], names, names]
    assert [item["pixel_values"][::4, 0].tolist() for item in filled if item] == [[1, 2, 5, 3, 4], [6, 1, 2, 3, 7], [9]]
    assert filled[0]["image_grid_thw"].tolist() == [[2, 2, 2], [1, 2, 2], [2, 2, 2]]
    assert filled[2]["image_grid_thw"].tolist() == [[1, 2, 2], [3, 2, 2], [1, 2, 2]]
    assert filled[0]["images_seqlens"].tolist() == [4] * 5
    assert [row.tolist() for row in made["input_ids"].unbind()] == [
        [IMAGE if token == VIDEO else token for token in row] for row in ids
    ]
    assert [row.tolist() for row in batch["input_ids"].unbind()] == ids  # as it was
    assert [sorted(item) for item in sequence_inputs(batch)] == [sorted(item) for item in rows]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("shown", ["images", "clips"])
@pytest.mark.parametrize("model", ["tiny", "tiny-qwen3_vl"])
def test_an_update_is_the_same_bit_for_bit(model: str, shown: str, video: Callable[[str], str], tmp_path: Path) -> None:
    """From pixels, and from references whose frame store is killed between the two passes."""
    pixels, references = result_of("tests.training.updates", str(tmp_path), video("h264_b_frames"), model, shown)
    assert references["engine"] == pixels["engine"] == "VideoEngine"
    for name in ("log_probs", "metrics", "weights"):
        assert references[name] == pixels[name], name
    assert all(value > 0 for name, value in pixels["metrics"].items() if name.endswith("grad_norm")), pixels["metrics"]
    # two pictures that a tool made came with the batch; of the store's frames five are distinct
    assert pixels["fetched"] is None
    width, height = SIZES[model]
    assert references["fetched"]["fetched"] == 5 and references["fetched"]["bytes"] == 5 * width * height * 3


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("model", ["tiny", "tiny-qwen3_vl"])
def test_ranks_may_be_shown_different_kinds_of_things(model: str, tmp_path: Path) -> None:
    """One has a clip and an image, the other text only: both run the vision tower once, and neither waits for ever."""
    found = result_of("tests.training.ranks", str(tmp_path), model)
    for alone, together in zip(found["alone"], found["together"], strict=True):
        assert together["log_probs"] == pytest.approx(alone["log_probs"], abs=1e-5)
    assert len({item["weights"] for item in found["together"]}) == 1
    assert found["together"][0]["weights"] not in {item["weights"] for item in found["alone"]}


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("model", ["tiny", "tiny-qwen3_vl"])
def test_a_later_turn_s_other_frame_moves_what_comes_after_it(
    model: str, video: Callable[[str], str], tmp_path: Path
) -> None:
    """The ids are the same: the first turn's log-probabilities stay, all of the second turn's are others."""
    found = result_of("tests.training.swapped", str(tmp_path), video("h264_b_frames"), model)
    generated = [place for place, trained in enumerate(found["mask"]) if trained]
    first, second = generated[:7], generated[7:]
    assert len(second) == 6
    for kind in ("pixels", "references"):
        before, other, again = found[kind]
        assert again == before, kind
        assert [other[place] for place in first] == pytest.approx([before[place] for place in first], abs=1e-5)
        moved = [abs(other[place] - before[place]) for place in second]
        assert max(moved) > 1e-3 and min(moved) > 1e-6, (kind, moved)
    assert found["references"] == found["pixels"]
