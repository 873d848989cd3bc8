"""Regions of frames."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from agentic_video.types.frame import Crop, Frame, Origin, image_key
from agentic_video.types.trajectory import FrameRef, record_parts
from agentic_video.video.crop import crop

PICTURE = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
STORED = Frame.stored(7, 0.7, PICTURE, Origin("v", 7, (6, 4)), image_key(PICTURE))


def test_a_region_is_cut_out_and_recorded() -> None:
    cut = crop(STORED, (1, 0, 4, 2))
    assert np.array_equal(cut.image, PICTURE[0:2, 1:4])
    assert (cut.index, cut.time, cut.width, cut.height) == (7, 0.7, 3, 2)
    assert cut.crop == Crop((1, 0, 4, 2), 6, 4)
    assert record_parts([cut, STORED]) == (FrameRef(7, 0.7, 3, 2, Crop((1, 0, 4, 2), 6, 4)), FrameRef(7, 0.7, 6, 4))


def test_a_region_goes_by_its_own_pixels() -> None:
    # the whole frame's origin would have a store serve the whole frame in its place
    cut = crop(STORED, (0, 0, 6, 4))
    assert cut.origin is None and not np.shares_memory(cut.image, PICTURE) and cut.key == STORED.key
    assert crop(STORED, (0, 0, 3, 4)).key != STORED.key


def test_a_region_may_be_resized() -> None:
    grey = Frame(0, 0.0, np.full((4, 6, 3), 9, np.uint8))
    cut = crop(grey, (0, 0, 3, 2), (12, 8))
    assert cut.image.shape == (8, 12, 3) and (cut.image == 9).all()


@pytest.mark.parametrize("box", [(0, 0, 7, 4), (0, 0, 6, 5), (-1, 0, 3, 3), (3, 0, 3, 2), (0, 3, 2, 2)])
def test_no_region_is_no_picture(box: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="no region of a frame of 6 x 4 pixels"):
        crop(STORED, box)


def test_a_crop_is_not_cropped_again() -> None:
    with pytest.raises(ValueError, match="a crop can't be cropped again"):
        crop(crop(STORED, (0, 0, 4, 4)), (0, 0, 1, 1))


def test_a_box_may_hold_numpy_s_numbers() -> None:
    cut = crop(STORED, np.array([1, 0, 4, 2]))  # type: ignore[arg-type]
    assert cut.crop == Crop((1, 0, 4, 2), 6, 4)
    assert json.loads(json.dumps(asdict(cut.crop)))["box"] == [1, 0, 4, 2]
    assert crop(STORED, [1, 0, 4, 2]).crop == cut.crop  # type: ignore[arg-type]


def test_an_edge_between_two_pixels_is_named() -> None:
    with pytest.raises(TypeError, match=r"^an edge of a crop's box must be a whole number, got float$"):
        crop(STORED, (0.5, 0, 3, 3))  # type: ignore[arg-type]
