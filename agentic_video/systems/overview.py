"""The overview as a choice: which frames an agent sees first. Every system has it as its key ``overview``."""

import math
from collections.abc import Sequence
from typing import get_args

from agentic_video.systems.base import EpisodeView, OverviewKind
from agentic_video.types.frame import Frame
from agentic_video.types.row import RowError
from agentic_video.utils.choices import check_choice
from agentic_video.video.sampling import (
    FrameTimes,
    rate_times,
    snapped_indices,
    spread_indices,
    stepped_indices,
    uniform_indices,
)

RETRIEVAL_CANDIDATES = 128


def check_overview(kind: str, fps: float | None = None) -> None:
    """Refuse an unknown kind, and a rate that is none.

    Args:
        kind: The system's ``overview``.
        fps: Its ``overview_fps``; None for a system without that key, whose overview can't be ``rate``.

    Raises:
        ValueError: It isn't an :data:`OverviewKind` that the system can have, or not so many frames a second can be
            shown.
    """
    kinds = get_args(OverviewKind)
    check_choice("overview", kind, kinds if fps is not None else tuple(one for one in kinds if one != "rate"))
    if fps is not None and not 0 < fps < math.inf:
        raise ValueError(f"overview_fps must be a number above 0, got {fps}")


def check_frame_times(frame_times: str) -> None:
    """Refuse an unknown word.

    Raises:
        ValueError: It isn't one of :data:`FrameTimes`.
    """
    check_choice("frame_times", frame_times, get_args(FrameTimes))


async def overview_frames(
    kind: OverviewKind,
    view: EpisodeView,
    *,
    count: int,
    size: tuple[int, int] | None,
    fps: float = 0.0,
    frame_times: FrameTimes = "nearest",
) -> list[Frame]:
    """The frames of the overview, in order of time.

    ``keyframes`` moves evenly spaced frames to keyframes, all of them distinct; the frames say their real times. A
    video with fewer keyframes than the overview has frames gets the evenly spaced ones: one keyframe shown twice would
    tell nothing new, and a shorter overview would be another task.

    Args:
        count: Most frames.
        size: (width, height) in pixels.
        fps: Frames a second, for ``rate``.
        frame_times: Which frame is meant by a place between two, for ``rate`` and for evenly spaced ones.

    Raises:
        RowError: ``listed``, and the row has no usable times.
        VideoError: Frames can't be read.
    """
    video = view.video
    if kind == "none" or count < 1:
        return []
    if kind == "listed":
        return await video.frames_at(_listed_times(view)[:count], size)
    if kind == "rate" and frame_times == "released":
        stepped = stepped_indices(video.info.num_frames, video.info.fps, fps)
        if len(stepped) <= count:
            return await video.frames(stepped, size)
    elif kind == "rate" and video.info.shown_seconds * fps <= count + 1:  # else there are more, however many
        times = [video.info.first_time + time for time in rate_times(video.info.shown_seconds, fps)]
        if len(times) <= count:
            return await video.frames_at(times, size)
    if kind == "retrieval":
        candidates = uniform_indices(video.info.num_frames, min(RETRIEVAL_CANDIDATES, video.info.num_frames))
        return await video.frames(await video.best_matches(view.qa.question, candidates, count), size)
    indices = spread_indices(video.info.num_frames, count, frame_times)
    if kind == "keyframes":
        indices = snapped_indices(await video.keyframes(), indices)
    return await video.frames(indices, size)


def _listed_times(view: EpisodeView) -> list[float]:
    times = view.qa.extra.get("overview_times")
    usable = (
        isinstance(times, Sequence)
        and not isinstance(times, str)
        and len(times) > 0
        and all(isinstance(time, int | float) and 0 <= time < float("inf") for time in times)
    )
    if not usable:
        raise RowError(
            f"row {view.qa.id}: field 'extra_info.overview_times' must list times in seconds (overview: listed), "
            f"got {times!r}"
        )
    return sorted(min(float(time), view.video.info.duration) for time in times)  # type: ignore[union-attr]
