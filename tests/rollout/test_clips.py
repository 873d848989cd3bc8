"""What a clip is to a model, by hand and against the processors themselves (positions: tests/training)."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.rollout.clips import (
    clip_grid,
    clip_tokens,
    expanded,
    patch_times,
    seconds_per_patch,
    timed_positions,
    timestamp,
)
from agentic_video.toyworld.model import FAMILIES, video_processor
from agentic_video.types.trajectory import ClipRef, FrameRef


def clip(count: int, width: int, height: int, every: float = 1.0) -> ClipRef:
    return ClipRef(tuple(FrameRef(number, every * number, width, height) for number in range(count)))


def test_two_frames_are_one_temporal_patch() -> None:
    small = video_processor("qwen2_5_vl")
    # 56 x 28 pixels are 4 x 2 patches of 14; 5 frames are 3 temporal patches, the last frame stands for two
    assert clip_grid(small, clip(4, 56, 28)) == (2, 2, 4)
    assert clip_grid(small, clip(5, 56, 28)) == (3, 2, 4)
    # 4 patches are one token: half of what four images of two tokens each are
    assert clip_tokens(small, clip(4, 56, 28)) == 4
    # Qwen3-VL: patches of 16
    assert clip_grid(video_processor("qwen3_vl"), clip(3, 32, 64)) == (2, 4, 2)


def test_qwen3_bounds_the_pixels_of_all_frames_together() -> None:
    processor = video_processor("qwen3_vl")
    processor.size.longest_edge = 4 * 64 * 64
    assert clip_grid(processor, clip(4, 64, 64)) == (2, 4, 4)
    assert clip_grid(processor, clip(16, 64, 64)) == (8, 2, 2)  # a quarter of the pixels a frame: 32 x 32
    other = video_processor("qwen2_5_vl")
    other.size.longest_edge = 56 * 56
    assert clip_grid(other, clip(16, 56, 56)) == (8, 4, 4)  # each frame by itself


@pytest.mark.parametrize("family", FAMILIES)
@given(count=st.integers(2, 9), rows=st.integers(1, 7), columns=st.integers(1, 7), odd=st.integers(-9, 9))
def test_the_grid_is_the_processor_s_own(family: str, count: int, rows: int, columns: int, odd: int) -> None:
    side = FAMILIES[family].frame_side  # type: ignore[index]
    processor = video_processor(family)  # type: ignore[arg-type]
    height, width = max(side, rows * side + odd), max(side, columns * side - odd)
    frames = torch.zeros((count, 3, height, width), dtype=torch.uint8)
    output = processor(videos=[frames], do_sample_frames=False, input_data_format="channels_first", return_tensors="pt")
    assert list(clip_grid(processor, clip(count, width, height))) == output["video_grid_thw"][0].tolist()


def test_times_by_hand() -> None:
    assert patch_times((0.0, 1.0, 2.0, 4.0)) == [0.5, 3.0]
    assert patch_times((0.0, 1.0, 2.5)) == [0.5, 2.5]  # the last frame stands for two
    # frames 2 s apart: 4 s a patch
    assert seconds_per_patch((10.0, 12.0, 14.0)) == 4.0
    assert seconds_per_patch((3.0, 3.0)) == 0.0
    assert (timestamp(0.25), timestamp(61.0)) == ("<0.2 seconds>", "<61.0 seconds>")


def test_pieces_are_replaced_in_order() -> None:
    assert expanded([1, 7, 8, 2, 7, 8, 3], [[7, 8], [7, 8]], [[9], [5, 5, 5]]) == [1, 9, 2, 5, 5, 5, 3]
    assert expanded([1, 2], [], []) == [1, 2]
    with pytest.raises(ValueError, match="aren't in the prompt"):
        expanded([1, 7, 8, 2], [[7, 8], [7, 8]], [[9], [9]])


def places(ids: list[int], images: list[list[int]], clips: list[tuple[list[int], float]]) -> list[list[int]]:
    found = timed_positions(np.array(ids), images, clips, image_token=8, video_token=9, merge=2)
    return [row.tolist() for row in found]


def test_positions_by_hand() -> None:
    # a text token; a clip of 2 temporal patches of 2 x 1 tokens, 1.5 s apart at 2 positions a second; a text token
    assert places([1, 9, 9, 9, 9, 1], [], [([2, 2, 4], 3.0)]) == [
        [0, 1, 1, 4, 4, 5],  # time: 1 + 0, 1 + 3
        [0, 1, 1, 1, 1, 5],  # height
        [0, 1, 2, 1, 2, 5],  # width; what follows goes on from the largest of all
    ]
    # 0.4 positions apart are rounded down; an image of one token, and text goes on from the clip's width
    assert places([9, 9, 9, 9, 8, 1], [[1, 2, 2]], [([2, 2, 4], 0.4)]) == [
        [0, 0, 0, 0, 2, 3],
        [0, 0, 0, 0, 2, 3],
        [0, 1, 0, 1, 2, 3],
    ]
    with pytest.raises(ValueError, match="placeholder at 1 that belongs to no"):
        places([1, 9], [[1, 2, 2]], [])
