"""Video-o3: an overview of the whole video, then closer looks at the segments that may hold a clue, each with as many
visual tokens as the agent asks for.

Zeng et al., "Video-o3: Native Interleaved Clue Seeking for Long Video Multi-Hop Reasoning". The constants are those of
the project's notes for the 7B model, and of the authors' port to Qwen3-VL elsewhere; docs/fidelity.md lists each with
its source.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field

from agentic_video.graders.answer import MatchRule
from agentic_video.graders.base import Graders
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.overview import Count, Rate, VideoSystem, ViewBudget, overview_frames
from agentic_video.systems.prompts import fill, load_prompt
from agentic_video.systems.shown import FramesAs, OverviewKind
from agentic_video.systems.videoo3.grammar import CALL_CLOSE, LABELS, call_body, parse_turn, shown
from agentic_video.systems.videoo3.reward import RewardClass, VideoO3Weights, videoo3_score
from agentic_video.tools.base import ToolError, Video
from agentic_video.tools.ground_segment import GroundRequest, check_grounding, frame_count
from agentic_video.types.action import Action, Calls, Illegal
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation, Part
from agentic_video.types.row import INTERVAL_TYPES, VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory
from agentic_video.video.index import VideoInfo
from agentic_video.video.sampling import linspace_times
from agentic_video.video.sizes import fit_size, shared_budget


@dataclass(frozen=True)
class CropTokens:
    """Visual tokens of a look, by its sampling strategy.

    Attributes:
        coarse: Of a ``coarse`` one (the port's training: 1,024).
        medium: Of a ``medium`` one (the port's training: 2,048).
        fine: Of a ``fine`` one (the port's training: 3,072).
    """

    coarse: Count = 2_048
    medium: Count = 4_096
    fine: Count = 6_144


@dataclass(frozen=True)
class VideoO3(VideoSystem):
    """The constants of Video-o3; each is a config key under ``agentic_video.system``.

    Attributes:
        overview: How the overview's frames are chosen: ``rate`` (evenly spaced ones, as many as the rate gives within
            the limits), ``uniform`` (the port's training, with 128 of them), ``keyframes``, ``listed`` (by an external
            frame selector, whose times the rows hold), ``retrieval`` or ``none``.
        overview_max_frames: Most frames of the overview.
        overview_tokens: Visual tokens of the overview (the port's training: 6,144).
        frames_as: How frames are shown: ``video`` (evenly spaced ones as one clip, half the tokens) or ``images`` (each
            by itself, after its time).
        crop_fps: Frames a second of a look.
        crop_min_frames: Least frames of a look, or of an overview at a rate.
        crop_max_frames: Most frames of a look.
        crop_tokens: Visual tokens of a look.
        shortest_crop: Least length of a look in seconds; a shorter one is refused.
        frame_min_tokens: Fewest visual tokens of a frame, or of a pair of a clip's frames, that is enlarged for them;
            the tokens of all frames go before it.
        frame_max_tokens: Most visual tokens of a frame, or of a pair of a clip's frames.
        max_turns: Most generations in training; the last one must answer.
        max_videos: Most observations of an episode, the overview included: a call beyond them ends it.
        max_images: Most frames of an episode, the overview included; the published limits never exceed it.
        grounding_prompt: The template for questions whose answer is a segment.
        opening_line: Before the overview.
        caption: After the frames of each observation.
        advice: After the question.
        observation_line: Before the frames of a look.
        go_on: Text after them.
        refusal: Reply to a call that can't be carried out.
        forced_answer: In validation and evaluation: shown where the episode would end without an answer, before one
            more turn.
        untrained_ends: Rollouts that end so are left out of the loss and of their group's statistics: a call in the
            last turn, one too many observations, or a context that is full.
        unnamed_class: Class of the questions that name none, for the bonus: ``none``, ``single_tool``, ``multi_tool``,
            ``any_tool``, ``single_direct`` or ``free``.
    """

    first_view_fields: ClassVar[tuple[str, ...]] = ("overview_max_frames",)
    name: str = "videoo3"
    overview: OverviewKind = "rate"
    overview_fps: Rate = 2.0
    overview_max_frames: int = 768
    overview_tokens: Count = 16_384
    frames_as: FramesAs = "video"
    crop_fps: Rate = 2.0
    crop_min_frames: Annotated[int, Field(ge=2)] = 4
    crop_max_frames: int = 768
    crop_tokens: CropTokens = field(default_factory=CropTokens)
    shortest_crop: float = 1.0
    frame_min_tokens: int = 20
    frame_max_tokens: int = 768
    size_factor: Count = 28
    max_turns: int = 6
    max_videos: int = 12
    max_images: int = 9_216
    prompt: str = "videoo3"
    grounding_prompt: str = "videoo3_grounding"
    opening_line: str = "Observation 0, the whole video:\n"
    caption: str = "\n{frames} frames at {fps:.2f} frames a second, from {start:.1f} to {end:.1f} seconds.\n"
    advice: str = "\nYou may answer at once if what you have seen is clear enough."
    observation_line: str = "Observation {number}, the segment that you asked for:\n"
    go_on: str = "Think on, then look at another segment or answer."
    refusal: str = "That look failed: {reason}. Think about it, then ask again or answer."
    forced_answer: str = (
        "There are no looks left. Think about all that you have seen inside <think> and </think>, then give your best "
        "answer inside <answer> and </answer>."
    )
    untrained_ends: tuple[str, ...] = ("turn_limit", "image_budget", "token_budget")
    answer_match: MatchRule = "marked_letter"
    unnamed_class: RewardClass = "none"
    weights: VideoO3Weights = field(default_factory=VideoO3Weights)
    stop: tuple[str, ...] = (CALL_CLOSE,)

    def __post_init__(self) -> None:
        if self.crop_max_frames < self.crop_min_frames:
            raise ValueError("crop_max_frames must not be below crop_min_frames")
        self._frame_size(64, 64, self.overview_tokens, 1, "images")

    @property
    def view_budget(self) -> ViewBudget:
        """The overview's bounds, for a baseline."""
        cell = self.size_factor**2
        return ViewBudget(self.frame_min_tokens * cell, self.frame_max_tokens * cell, self.overview_tokens)

    def overview_count(self, info: VideoInfo) -> int:
        """Most frames of a video's overview."""
        if self.overview != "rate":
            return self.overview_max_frames
        least = min(self.crop_min_frames, self.overview_max_frames)
        return frame_count(info.duration, self.overview_fps, least, self.overview_max_frames)

    def frame_size(self, info: VideoInfo, tokens: int, count: int, frames_as: FramesAs) -> tuple[int, int]:
        """(width, height) of ``count`` frames that share ``tokens`` visual tokens; a clip's are merged two by two."""
        return self._frame_size(info.width, info.height, tokens, count, frames_as)

    def _frame_size(self, width: int, height: int, tokens: int, count: int, frames_as: FramesAs) -> tuple[int, int]:
        pictures = count if frames_as == "images" else -(-count // 2)
        budget = shared_budget(
            tokens, pictures, least=self.frame_min_tokens, most=self.frame_max_tokens, factor=self.size_factor
        )
        return fit_size(width, height, budget)

    def described(self, frames: Sequence[Frame], start: float, end: float, frames_as: FramesAs) -> tuple[Part, ...]:
        """Frames with a line about their number and times."""
        fps = len(frames) / (end - start) if end > start else 0.0
        return (*shown(frames, frames_as), fill(self.caption, frames=len(frames), fps=fps, start=start, end=end))

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        info = view.video.info
        frames_as = self.overview_as
        count = min(self.overview_count(info), info.num_frames)
        frames = await overview_frames(
            "uniform" if self.overview == "rate" else self.overview,
            view,
            count=count,
            size=self.frame_size(info, self.overview_tokens, max(count, 1), frames_as),
        )
        template = self.grounding_prompt if view.qa.answer_type in INTERVAL_TYPES else self.prompt
        instructions = fill(
            load_prompt(template),
            labels=LABELS[self.frames_as],
            shortest=self.shortest_crop,
            max_calls=self.max_turns - 1,
            duration=info.duration,
        ).strip()
        overview = (self.opening_line, *self.described(frames, 0.0, info.duration, frames_as)) if frames else ()
        question = self.question(view.qa) + self.advice
        return (Message("system", (instructions,)), Message("user", (*overview, question)))

    def parse(self, text: str) -> Action:
        return parse_turn(text)

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        if isinstance(action, Illegal):
            # A turn without a whole call leaves nothing to reply to (released port: the episode ends).
            if call_body(view.turns[-1].text) is None:
                return None
            return self._refused(action.reason)
        seen = sum(turn.legal_calls for turn in view.turns) + (self.overview != "none")
        if seen >= self.max_videos:
            return Observation((), unread_images=self.max_images + 1)
        try:
            request = check_grounding(action.calls[0].arguments, view.video.info.duration, self.shortest_crop)
        except ToolError as error:
            return self._refused(str(error))
        frames = await self.look(request, view.video)
        # Its number is that of the turn it answers (released port): a look that failed leaves a gap.
        header = fill(self.observation_line, number=len(view.turns))
        parts = (header, *self.described(frames, request.start, request.end, self.frames_as), self.go_on)
        return Observation(tuple(part for part in parts if part), legal_calls=1)

    async def look(self, request: GroundRequest, video: Video) -> list[Frame]:
        """The frames of a legal request in order of time, each once: evenly spaced, both ends included."""
        seconds = request.end - request.start
        count = frame_count(seconds, self.crop_fps, self.crop_min_frames, self.crop_max_frames)
        tokens = getattr(self.crop_tokens, request.strategy)
        size = self.frame_size(video.info, tokens, count, self.frames_as)
        frames = await video.frames_at(linspace_times(request.start, request.end, count), size)
        return list({frame.index: frame for frame in frames}.values())

    def _refused(self, reason: str) -> Observation:
        return Observation((fill(self.refusal, reason=reason),), illegal_calls=1)

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        acc = await self.grade(trajectory, qa, graders)
        return videoo3_score(trajectory, qa, acc, self.weights, self.unnamed_class)
