from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import vision_utils

from agentic_video.families.qwen_vl_layout import cache_by_size
from tests.families.processors import QWEN_VL

NAMES = ("get_vision_position_ids", "get_vision_window_index", "get_vision_bilinear_indices_and_weights")
MERGE, WINDOW, PATCH, SIDE = 2, 112, 14, 48
SIZES = st.tuples(st.integers(1, 3), *[st.integers(1, 12).map(lambda half: half * MERGE)] * 2)


@pytest.fixture(scope="module")
def patched() -> SimpleNamespace:
    """The patched functions of the families' modules."""
    found = {}
    for family in QWEN_VL:
        module = import_module(f"transformers.models.{family}.modeling_{family}")
        copy = ModuleType(module.__name__)
        vars(copy).update({name: vars(module)[name] for name in NAMES if hasattr(module, name)})
        cache_by_size(copy)
        found |= {name: vars(copy)[name] for name in NAMES if hasattr(copy, name)}
    return SimpleNamespace(**found)


def equal(found: Any, expected: Any) -> bool:
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@given(sizes=st.lists(SIZES, min_size=1, max_size=8))
def test_layouts_are_those_of_transformers(patched: SimpleNamespace, sizes: list[tuple[int, int, int]]) -> None:
    """Twice: the second time from what is kept."""
    grids = torch.tensor(sizes)
    for _ in range(2):
        stock = vision_utils.get_vision_position_ids(grids, MERGE)
        assert equal([patched.get_vision_position_ids(grids, MERGE)], [stock])
        windows = vision_utils.get_vision_window_index(grids, MERGE, WINDOW, PATCH)
        assert equal(patched.get_vision_window_index(grids, MERGE, WINDOW, PATCH), windows)
        corners = vision_utils.get_vision_bilinear_indices_and_weights(grids, SIDE, MERGE)
        assert equal(patched.get_vision_bilinear_indices_and_weights(grids, SIDE, MERGE), corners)


def test_windows_by_hand(patched: SimpleNamespace) -> None:
    """Pictures of 4 x 2 tokens, in windows of 2 x 2: each is two windows of four tokens, which are sixteen patches."""
    index, ends = patched.get_vision_window_index(torch.tensor([[1, 8, 4]] * 2), MERGE, 2 * MERGE * PATCH, PATCH)
    assert index.tolist() == list(range(16))
    assert ends.tolist() == [0, 16, 32, 48, 64]


def test_what_is_given_is_taken(patched: SimpleNamespace) -> None:
    given_ids, more = torch.tensor([[7, 7]]), {"position_ids": torch.tensor([[7, 7]])}
    assert equal([patched.get_vision_position_ids(torch.tensor([[1, 2, 2]]), MERGE, kwargs=more)], [given_ids])
    assert more == {}


def test_what_is_handed_out_can_be_written_to(patched: SimpleNamespace) -> None:
    grid = torch.tensor([[1, 4, 4]])
    patched.get_vision_position_ids(grid, MERGE).fill_(9)
    assert equal([patched.get_vision_position_ids(grid, MERGE)], [vision_utils.get_vision_position_ids(grid, MERGE)])


def test_a_module_without_these_functions_is_refused() -> None:
    with pytest.raises(AttributeError):
        cache_by_size(ModuleType("modeling_qwen3_vl"))
