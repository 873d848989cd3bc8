"""Positions and windows of pictures in a vision tower, computed once for each size.

transformers computes them picture by picture in every forward pass; most pictures of a run have the same size.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from inspect import signature
from types import ModuleType
from typing import Any

import torch

SIZES = 1024
"""Sizes that are kept."""
Layout = tuple[torch.Tensor, torch.Tensor]
"""Window indices and ends, or corners and their weights."""


def cache_by_size(modeling: ModuleType) -> None:
    """Have transformers' module of a model look up positions and windows."""
    functions: list[tuple[str, set[str], Callable[..., Any]]]
    functions = [
        ("get_vision_position_ids", {"position_ids"}, _joined_positions),
        ("get_vision_window_index", {"window_index", "cu_window_seqlens"}, _joined_windows),
        ("get_vision_bilinear_indices_and_weights", {"bilinear_indices", "bilinear_weights"}, _joined_corners),
    ]
    for number, (name, given, joined) in enumerate(functions):
        if not number or hasattr(modeling, name):  # all towers have the first
            setattr(modeling, name, _by_size(getattr(modeling, name), given, joined))


def _by_size(original: Any, given: set[str], joined: Callable[..., Any]) -> Any:
    """A function of transformers that takes sizes of pictures, then numbers, then the model's ``kwargs``."""
    parameters = signature(original)

    @lru_cache(SIZES)
    def of_size(size: tuple[int, ...], *numbers: int) -> Any:
        return original(torch.tensor([size]), *numbers)

    @wraps(original)
    def of_all(*args: Any, **named: Any) -> Any:
        values = dict(parameters.bind(*args, **named).arguments)
        kwargs = values.pop("kwargs", None) or {}
        sizes, *numbers = values.values()
        if given & set(kwargs) or not all(isinstance(number, int) for number in numbers) or not len(sizes):
            return original(*args, **named)
        return joined([of_size(tuple(size), *numbers) for size in sizes.tolist()], sizes.device, *numbers)

    return of_all


def _joined_positions(each: Sequence[torch.Tensor], device: torch.device, *numbers: int) -> torch.Tensor:
    return torch.cat(list(each)).to(device)


def _joined_windows(each: Sequence[Layout], device: torch.device, merge: int, *numbers: int) -> Layout:
    tokens = torch.tensor([len(index) for index, _ in each])
    windows = torch.tensor([len(ends) - 1 for _, ends in each])  # the first end is 0
    before = tokens.cumsum(0) - tokens
    index = torch.cat([index for index, _ in each]) + before.repeat_interleave(tokens)
    ends = torch.cat([ends[1:] for _, ends in each])
    ends = ends + (before * merge**2).to(ends.dtype).repeat_interleave(windows)
    return index, torch.cat([ends.new_zeros(1), ends]).to(device)


def _joined_corners(each: Sequence[Layout], device: torch.device, *numbers: int) -> Layout:
    indices, weights = (torch.cat(parts, 1).to(device) for parts in zip(*each, strict=True))
    return indices, weights
