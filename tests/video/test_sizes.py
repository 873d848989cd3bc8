"""Sizes and regions: worked by hand, and compared with Qwen2-VL's own arithmetic."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

from agentic_video.types.frame import Crop, Frame, Origin, image_key
from agentic_video.types.trajectory import FrameRef, record_parts
from agentic_video.video.sizes import PixelBudget, crop, fit_size, fit_within, resize, shared_budget

SIDE = st.integers(1, 5000)


def test_fit_size_worked_by_hand() -> None:
    # 640x360 -> 23x13 cells of 28 = 644x364 = 234416 pixels, within the budget.
    assert fit_size(640, 360, PixelBudget(56 * 56, 300_000)) == (644, 364)
    # shrink = sqrt(1920*1080/100352) = 4.546; 1920/4.546/28 = 15.08, 1080/4.546/28 = 8.48.
    assert fit_size(1920, 1080, PixelBudget(56 * 56, 100_352)) == (420, 224)
    # grow = sqrt(3136/600) = 2.286; 30*2.286/28 = 2.45 -> 3, 20*2.286/28 = 1.63 -> 2.
    assert fit_size(30, 20, PixelBudget(56 * 56, 100_352)) == (84, 56)
    assert fit_size(64, 64, PixelBudget(0, 64 * 64, factor=32)) == (64, 64)


@given(SIDE, SIDE, st.sampled_from([14, 28, 32]), st.integers(0, 40), st.integers(1, 4000))
def test_fit_size_is_smart_resize(width: int, height: int, factor: int, low: int, more: int) -> None:
    budget = PixelBudget(low * factor**2, (low + more) * factor**2, factor)
    if max(width, height) / min(width, height) > 200:
        with pytest.raises(ValueError, match="ratio"):
            fit_size(width, height, budget)
        return
    try:
        high, wide = smart_resize(height, width, factor, budget.min_pixels, budget.max_pixels)
    except ZeroDivisionError:  # no min_pixels and a side below half a factor
        return
    assert fit_size(width, height, budget) == (wide, high)


def test_fit_within_worked_by_hand() -> None:
    assert fit_within(1920, 1080, 640, 360) == (640, 360)
    assert fit_within(1080, 1920, 640, 360) == (202, 360)  # 202.5 rounds to even
    assert fit_within(320, 180, 640, 360) == (320, 180)
    assert fit_within(1920, 1080, 640, 360, factor=28) == (616, 336)
    assert fit_within(4000, 10, 640, 360) == (640, 2)


@given(SIDE, SIDE, st.integers(28, 800), st.integers(28, 800), st.sampled_from([1, 2, 14, 28]))
def test_fit_within_never_leaves_the_box(width: int, height: int, wide: int, high: int, factor: int) -> None:
    fitted = fit_within(width, height, wide, high, factor)
    assert factor <= fitted[0] <= wide and factor <= fitted[1] <= high
    assert fitted[0] % factor == fitted[1] % factor == 0


@pytest.mark.parametrize(
    ("tokens", "count", "least", "most", "bounds"),
    [
        (100, 10, 2, 50, (2, 10)),  # ten each
        (105, 10, 2, 50, (2, 10)),  # whole tokens
        (100, 10, 2, 7, (2, 7)),
        (100, 50, 20, 50, (1, 2)),  # what all share goes before the least
        (100, 300, 1, 50, (1, 1)),  # no picture is smaller than a token
        (100, 1, 100, 500, (1, 100)),
    ],
)
def test_pictures_share_tokens(tokens: int, count: int, least: int, most: int, bounds: tuple[int, int]) -> None:
    shared = shared_budget(tokens, count, least=least, most=most, factor=28)
    assert (shared.min_pixels, shared.max_pixels, shared.factor) == (bounds[0] * 784, bounds[1] * 784, 28)


def test_resize() -> None:
    image = np.zeros((40, 60, 3), dtype=np.uint8)
    image[:, 30:] = 200
    small = resize(image, 30, 20)
    assert small.shape == (20, 30, 3) and small.dtype == np.uint8
    assert (small[:, :12] == 0).all() and (small[:, 18:] == 200).all()
    assert np.array_equal(small, resize(image, 30, 20))
    assert resize(image, 60, 40) is image
    with pytest.raises(ValueError, match="positive"):
        resize(image, 0, 20)
    with pytest.raises(ValueError, match="uint8"):
        resize(image.astype(np.float32), 30, 20)


@pytest.mark.parametrize("size", [(448, 252), (112, 112), (640, 100), (1280, 720), (1, 1)])
def test_resize_as_pil(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (360, 640, 3), dtype=np.uint8)
    image[100:200, 100:300] = (255, 0, 0)
    image.setflags(write=False)
    ours = resize(image, *size)
    theirs = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))
    assert ours.shape == theirs.shape and ours.flags.c_contiguous and ours.flags.writeable
    difference = np.abs(ours.astype(int) - theirs)
    assert difference.max() <= 2 and (difference > 0).mean() < 0.01


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


@pytest.mark.parametrize("box", [(0, 0, 7, 4), (0, 0, 6, 5), (-1, 0, 3, 3), (3, 0, 3, 2), (0, 3, 2, 2)])
def test_no_region_is_no_picture(box: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="no region"):
        crop(STORED, box)


def test_sizes_and_regions_that_make_no_sense() -> None:
    for call in (
        lambda: fit_within(0, 10, 20, 20),
        lambda: fit_within(10, 10, 20, 20, 28),
        lambda: PixelBudget(-1, 1000),
        lambda: PixelBudget(0, 27 * 28),
        lambda: PixelBudget(0, 100, 0),
        lambda: shared_budget(0, 1, most=1),
        lambda: crop(crop(STORED, (0, 0, 4, 4)), (0, 0, 1, 1)),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError):
        crop(STORED, (0.5, 0, 3, 3))  # type: ignore[arg-type]


def test_a_box_of_numpys_numbers_is_recorded_as_plain_ones_and_a_region_may_be_resized() -> None:
    cut = crop(STORED, np.array([1, 0, 4, 2]), (12, 8))  # type: ignore[arg-type]
    assert cut.crop == Crop((1, 0, 4, 2), 6, 4) and cut.image.shape == (8, 12, 3)
    assert json.loads(json.dumps(asdict(cut.crop)))["box"] == [1, 0, 4, 2]
