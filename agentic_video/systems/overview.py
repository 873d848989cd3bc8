"""The overview: the frames that an agent sees first, and the config keys that the packaged systems share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from agentic_video.graders.answer import MatchRule
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.prompts import OPTION_FORMAT, fill, instructions_of, question_text
from agentic_video.systems.shown import FramesAs, OverviewKind, overview_as
from agentic_video.types.frame import Frame
from agentic_video.types.row import RowError, VideoQA
from agentic_video.video.index import VideoInfo
from agentic_video.video.sampling import (
    FrameTimes,
    rate_times,
    snapped_indices,
    spread_indices,
    stepped_indices,
    uniform_indices,
)
from agentic_video.video.sizes import PixelBudget, fit_size

RETRIEVAL_CANDIDATES = 128

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Frames a second."""


@dataclass(frozen=True)
class ViewBudget:
    """Size limits of a first view's frames; the defaults are those of most papers' baselines.

    Attributes:
        min_pixels: Least pixels of a shown frame.
        max_pixels: Most pixels of a shown frame.
        tokens: Visual tokens of all frames together, which bound their size too; None: no such bound.
    """

    min_pixels: int = 25_088
    max_pixels: int = 100_352
    tokens: int | None = None


def view_budget(system: System) -> ViewBudget:
    """Size limits of a plain baseline's frames next to a system: the system's ``view_budget``, else the defaults."""
    budget: ViewBudget = getattr(system, "view_budget", ViewBudget())
    return budget


@dataclass(frozen=True)
class VideoSystem(System):
    """A system that begins with an overview and asks the question with its options.

    Attributes:
        overview: How the overview's frames are chosen: ``uniform``, ``rate``, ``keyframes``, ``listed`` (by an external
            frame selector, whose times the rows hold), ``retrieval`` or ``none``.
        overview_fps: Frames a second of the overview, where it is ``rate``.
        overview_frames: Most frames of the overview.
        overview_max_frames: When the rate gives more frames than this, this many uniform ones replace them.
        frames_as: How frames are shown: ``images`` (each by itself, after its label) or ``video`` (evenly spaced ones
            as one clip, after the labels of its first and its last: half the tokens).
        min_pixels: Least pixels of a shown frame.
        max_pixels: Most pixels of a shown frame.
        size_factor: Sides of a shown frame are multiples of this (patch size times merge size of the processor).
        max_turns: Most generations; the last one must answer.
        max_images: Most images of an episode, the overview included.
        prompt: Name of a template in ``agentic_video/systems/<system>/prompts``, or a file.
        observation_role: Role of replies: ``tool`` (released) or ``user``.
        option_format: How an option is written; ``{letter}`` and ``{text}`` are filled in.
        answer_match: Rule for multiple-choice answers: ``robust`` (letters and option texts in any common form),
            ``strict`` (the letter alone), or a paper's: ``exact`` (FrameThinker, FrameMind), ``one_letter``
            and ``last_letter`` (VideoZoomer), ``leading_letter`` (TimeSearch-R), ``marked_letter`` (Video-o3).
        weights: Weights of the reward.
    """

    first_view_fields: ClassVar[tuple[str, ...]] = ("overview_frames",)
    """The fields that hold the number of frames of the first view, for sweeps and the toy world."""
    overview: OverviewKind = "uniform"
    frames_as: FramesAs = "images"
    option_format: str = OPTION_FORMAT
    answer_match: MatchRule = "robust"

    @property
    def overview_as(self) -> FramesAs:
        """The form in which the overview is shown."""
        return overview_as(self.frames_as, self.overview)

    async def first_frames(self, view: EpisodeView, count: int, size: tuple[int, int] | None) -> list[Frame]:
        """The overview's frames (:func:`overview_frames`)."""
        fps: float = getattr(self, "overview_fps", 0.0)
        times: FrameTimes = getattr(self, "frame_times", "nearest")
        return await overview_frames(self.overview, view, count=count, size=size, fps=fps, frame_times=times)

    def instructions(self, **values: object) -> str:
        """The prompt with values filled in."""
        return fill(instructions_of(self), **values)

    def question(self, qa: VideoQA) -> str:
        """The question with its options."""
        return question_text(qa, self.option_format)


@dataclass(frozen=True)
class PixelBoundedSystem(VideoSystem):
    """A system whose frames keep within bounds in pixels."""

    min_pixels: int = 784
    max_pixels: int = 50_176
    size_factor: Count = 28

    @property
    def view_budget(self) -> ViewBudget:
        """The same bounds, for a baseline."""
        return ViewBudget(self.min_pixels, self.max_pixels)

    def frame_size(self, info: VideoInfo) -> tuple[int, int]:
        """(width, height) of this video's shown frames."""
        return fit_size(info.width, info.height, PixelBudget(self.min_pixels, self.max_pixels, self.size_factor))


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

    ``keyframes`` moves evenly spaced frames to distinct keyframes. A video with fewer keyframes than the overview has
    frames gets the evenly spaced ones: a shorter overview would be another task.

    Args:
        count: Most frames.
        size: (width, height) in pixels.
        fps: Frames a second, for ``rate``.
        frame_times: Choice of a frame for a place between two, for ``rate`` and for evenly spaced ones.

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
