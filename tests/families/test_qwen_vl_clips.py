"""Times, pieces and positions of clips, by hand."""

import numpy as np
import pytest

from agentic_video.families.base import expanded
from agentic_video.families.qwen3_vl import timestamp
from agentic_video.families.qwen_vl_clips import patch_times, seconds_per_patch, timed_positions


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
        [0, 1, 2, 1, 2, 5],  # width; what follows continues from the largest
    ]
    # 0.4 positions apart are rounded down; an image of one token, and text continues from the clip's width
    assert places([9, 9, 9, 9, 8, 1], [[1, 2, 2]], [([2, 2, 4], 0.4)]) == [
        [0, 0, 0, 0, 2, 3],
        [0, 0, 0, 0, 2, 3],
        [0, 1, 0, 1, 2, 3],
    ]
    with pytest.raises(ValueError, match="placeholder"):
        places([1, 9], [[1, 2, 2]], [])
