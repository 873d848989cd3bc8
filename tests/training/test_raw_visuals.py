from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.utils import hf_processor

from agentic_video.families.registry import family_of
from agentic_video.training.inputs.model_inputs import (
    PIXELS,
    SHAPES,
    raw_visuals,
    split_raw,
    visual_pixels,
    with_patches_of_raw,
)
from agentic_video.types.frame import Clip
from agentic_video.types.message import Visual
from tests.families.processors import processor_of
from tests.training.test_model_inputs import PROCESSOR, frame


@pytest.fixture(scope="module")
def any_processor(any_checkpoint: Path) -> Any:
    return hf_processor(str(any_checkpoint))


def visual(number: int, width: int, height: int, moments: int) -> Visual:
    frames = [frame(10 * number + moment, width, height) for moment in range(moments)]
    return Clip(tuple(frames)) if moments > 1 else frames[0]


def kept(processor: Any, one: Visual) -> Visual:
    """The same at a size that the processor keeps; one frame of a clip for a model without clips."""
    rules = family_of(processor).rules(processor)
    moments = len(one.frames) if isinstance(one, Clip) and rules.takes_clips else 0
    size = rules.kept(one.width, one.height, moments)
    first = one.frames[0] if isinstance(one, Clip) else one
    return visual(first.index // 10, *size, max(1, moments))


SHOWN = st.lists(
    st.builds(
        lambda number, width, height, moments: visual(number, 32 * width, 32 * height, moments),
        *(st.integers(0, 9), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5)),
    ),
    max_size=6,
)


@given(shown=SHOWN)
def test_the_patches_are_those_of_the_images_and_clips(any_processor: Any, shown: Sequence[Visual]) -> None:
    shown = [kept(any_processor, item) for item in shown]
    raw = raw_visuals(shown)
    pixels = visual_pixels(any_processor, shown)
    expected = family_of(any_processor).joined([pixels[visual.key] for visual in shown])
    found = with_patches_of_raw(any_processor, {**raw, "image_grid_thw": "kept"})
    assert found.pop("image_grid_thw") == "kept"
    assert set(found) == set(expected)
    for name, patches in expected.items():
        assert torch.equal(found[name], patches) and patches.dtype == torch.float32


@given(shown=SHOWN, count=st.integers(0, 6))
def test_a_sequence_is_split_where_its_images_are(shown: Sequence[Visual], count: int) -> None:
    before, after = split_raw(raw_visuals(shown), count)
    for part, expected in ((before, shown[:count]), (after, shown[count:])):
        whole = raw_visuals(expected)
        if not whole:
            assert not sum(len(value) for value in part.values())
        else:
            assert part[PIXELS].tolist() == whole[PIXELS].tolist() and part[SHAPES].tolist() == whole[SHAPES].tolist()


def test_a_loader_moves_bytes_in_two_tensors(any_processor: Any) -> None:
    shown = [visual(number, 112, 56, moments) for number, moments in enumerate((1, 1, 4, 1))]
    raw = raw_visuals(shown)
    assert {name: value.dtype for name, value in raw.items()} == {PIXELS: torch.uint8, SHAPES: torch.int64}
    assert raw[SHAPES].tolist() == [[0, 56, 112], [0, 56, 112], [4, 56, 112], [0, 56, 112]]
    # seven pictures of 112 x 56 pixels, 3 bytes each
    assert raw[PIXELS].nbytes == 7 * 112 * 56 * 3
    # Patches hold float32, and an image as two moments.
    patches = with_patches_of_raw(processor_of(PROCESSOR), raw_visuals(shown[:2]))
    assert patches["pixel_values"].nbytes == 8 * 2 * 112 * 56 * 3
    small = raw_visuals([kept(any_processor, item) for item in shown])
    halved = with_patches_of_raw(any_processor, small, dtype=torch.bfloat16)
    assert {value.dtype for value in halved.values()} == {torch.bfloat16}
    assert raw_visuals([]) == {} == with_patches_of_raw(any_processor, {})
