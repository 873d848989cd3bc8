"""The resolution ladder: views of one video between many small frames and few large ones (FrameMind, section 3.3)."""

from dataclasses import dataclass

from agentic_video.systems.overview import Count


@dataclass(frozen=True)
class FrameSampling:
    """One view of a video: so many frames of this size.

    Attributes:
        frames: Number of frames.
        height: Of a frame, in pixels.
        width: Of a frame, in pixels.
    """

    frames: Count
    height: Count
    width: Count


def ladder_sampling(low: FrameSampling, high: FrameSampling, index: int, group_size: int, factor: int) -> FrameSampling:
    """The view of one member of a group: ``(1 - r) low + r high`` with r = index / (group_size - 1), in all numbers.

    Section 3.3, equations 2 and 3, and Algorithm 1, line 4, which count members from 1. Frames are rounded to whole
    numbers, sides in pixels to multiples of ``factor``, as Qwen2-VL's processor would. Beyond the group the ladder
    begins again; the only member of a group of one gets ``low``.
    """
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
