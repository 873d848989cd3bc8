"""The resolution ladder: views of one video between many small frames and few large ones (FrameMind, section 3.3)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FrameSampling:
    """One view of a video: so many frames of this size.

    Attributes:
        frames: Number of frames.
        height: Of a frame, in pixels.
        width: Of a frame, in pixels.
    """

    frames: int
    height: int
    width: int

    def __post_init__(self) -> None:
        if min(self.frames, self.height, self.width) < 1:
            raise ValueError(f"a sampling needs positive numbers, got {self}")


def ladder_sampling(low: FrameSampling, high: FrameSampling, index: int, group_size: int, factor: int) -> FrameSampling:
    """The view of one member of a group: ``(1 - r) low + r high`` with r = index / (group_size - 1), in all numbers.

    Section 3.3, equations 2 and 3, and Algorithm 1, line 4, which count members from 1. The results are rounded to what
    can be shown: whole frames, and sides that are multiples of ``factor``, as Qwen2-VL's processor would round them.

    Args:
        low: The view of the first member: many small frames.
        high: The view of the last one: few large frames.
        index: Number of the member, from 0; beyond the group the ladder begins again.
        group_size: Members of a group; the only member of a group of one gets ``low``.
        factor: Sides in pixels become multiples of this, at least one.
    """
    if group_size < 1 or factor < 1:
        raise ValueError(f"group_size and factor must be at least 1, got {group_size} and {factor}")
    step, steps = index % group_size, max(1, group_size - 1)

    def between(first: int, last: int) -> float:
        return first + (last - first) * step / steps

    def side(first: int, last: int) -> int:
        return max(1, round(between(first, last) / factor)) * factor

    return FrameSampling(
        frames=round(between(low.frames, high.frames)),
        height=side(low.height, high.height),
        width=side(low.width, high.width),
    )
