"""What a vision tower needs to know of its pictures' sizes, made once for each size.

transformers makes it picture by picture with a dozen small operations each, in every forward pass. Without an
accelerator, and with a tiny model, this takes an eighth of an actor's time; most pictures of a run have the same size.
"""

from functools import lru_cache
from types import ModuleType
from typing import Any

import torch

SIZES = 1024
"""So many sizes are kept."""


def laid_out_once(modeling: ModuleType) -> None:
    """Have a model's module look positions and windows up, which are the same for all pictures of one size.

    Args:
        modeling: transformers' module of Qwen2.5-VL or Qwen3-VL.
    """
    for name, joined in (
        ("get_vision_position_ids", _joined_positions),
        ("get_vision_window_index", _joined_windows),
        ("get_vision_bilinear_indices_and_weights", _joined_corners),
    ):
        if hasattr(modeling, name):
            setattr(modeling, name, joined(getattr(modeling, name)))


def _joined_positions(original: Any) -> Any:
    @lru_cache(SIZES)
    def of_one(size: tuple[int, ...], merge: int) -> torch.Tensor:
        made: torch.Tensor = original(torch.tensor([size]), merge)
        return made

    def get_vision_position_ids(grid_thw: torch.Tensor, spatial_merge_size: Any, kwargs: Any = None) -> torch.Tensor:
        if (kwargs and "position_ids" in kwargs) or not isinstance(spatial_merge_size, int) or not len(grid_thw):
            made: torch.Tensor = original(grid_thw, spatial_merge_size, kwargs=kwargs)
            return made
        return torch.cat([of_one(tuple(size), spatial_merge_size) for size in grid_thw.tolist()]).to(grid_thw.device)

    return get_vision_position_ids


def _joined_windows(original: Any) -> Any:
    @lru_cache(SIZES)
    def of_one(size: tuple[int, ...], *sides: int) -> tuple[torch.Tensor, torch.Tensor]:
        index, ends = original(torch.tensor([size]), *sides)
        return index, ends[1:]

    def get_vision_window_index(
        grid_thw: torch.Tensor, spatial_merge_size: int, window_size: int, patch_size: int, kwargs: Any = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        sides = spatial_merge_size, window_size, patch_size
        if (kwargs and {"window_index", "cu_window_seqlens"} & set(kwargs)) or not len(grid_thw):
            made: tuple[torch.Tensor, torch.Tensor] = original(grid_thw, *sides, kwargs=kwargs)
            return made
        each = [of_one(tuple(size), *sides) for size in grid_thw.tolist()]
        tokens = torch.tensor([len(index) for index, _ in each])
        windows = torch.tensor([len(ends) for _, ends in each])
        before = tokens.cumsum(0) - tokens
        index = torch.cat([index for index, _ in each]) + before.repeat_interleave(tokens)
        ends = torch.cat([ends for _, ends in each])
        ends = ends + (before * spatial_merge_size**2).to(ends.dtype).repeat_interleave(windows)
        return index, torch.cat([ends.new_zeros(1), ends]).to(grid_thw.device)

    return get_vision_window_index


def _joined_corners(original: Any) -> Any:
    @lru_cache(SIZES)
    def of_one(size: tuple[int, ...], *sides: int) -> tuple[torch.Tensor, torch.Tensor]:
        made: tuple[torch.Tensor, torch.Tensor] = original(torch.tensor([size]), *sides)
        return made

    def get_vision_bilinear_indices_and_weights(
        grid_thw: torch.Tensor, num_grid_per_side: int, spatial_merge_size: int, kwargs: Any = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        sides = num_grid_per_side, spatial_merge_size
        if (kwargs and {"bilinear_indices", "bilinear_weights"} & set(kwargs)) or not len(grid_thw):
            made: tuple[torch.Tensor, torch.Tensor] = original(grid_thw, *sides, kwargs=kwargs)
            return made
        each = [of_one(tuple(size), *sides) for size in grid_thw.tolist()]
        indices, weights = (torch.cat(parts, 1).to(grid_thw.device) for parts in zip(*each, strict=True))
        return indices, weights

    return get_vision_bilinear_indices_and_weights
