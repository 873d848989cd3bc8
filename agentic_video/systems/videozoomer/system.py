"""VideoZoomer: a coarse overview, then zooms into stretches of the video at a rate that the agent chooses.

Ding et al., "VideoZoomer: Reinforcement-Learned Temporal Focusing for Long Video Reasoning". The constants are the
paper's where it gives them, the released code's elsewhere; docs/fidelity.md lists each with its source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from agentic_video.graders.answer import MatchRule
from agentic_video.graders.base import Graders
from agentic_video.graders.judge import grade_answer
from agentic_video.systems.base import OPEN_ENDED, EpisodeView, Grader, System, ViewBudget
from agentic_video.systems.overview import OverviewKind, check_frame_times, check_overview, overview_frames
from agentic_video.systems.prompts import fill, load_prompt, question_text
from agentic_video.systems.shown import FramesAs, check_frames_as, overview_as
from agentic_video.systems.videozoomer.grammar import CALL_CLOSE, CALL_OPEN, LABELS, all_said, labelled, parse_turn
from agentic_video.systems.videozoomer.reward import VideoZoomerWeights, videozoomer_score
from agentic_video.tools.base import ToolError, Video
from agentic_video.tools.video_zoom import ZoomRequest, check_zoom
from agentic_video.types.action import Action, Calls, Illegal
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory
from agentic_video.utils.choices import check_choice
from agentic_video.video.index import VideoInfo
from agentic_video.video.sampling import FrameTimes, floored_span, linspace_times
from agentic_video.video.sizes import PixelBudget, fit_size

PromptRole = Literal["user", "system"]
"""Whose message the instructions are: the user's own, before the frames, or the system's (paper, released code)."""

Unanswered = Literal["wrong", "graded"]
"""Treatment of an episode without an answer in tags."""


@dataclass(frozen=True)
class VideoZoomer(System):
    """The constants of VideoZoomer; each is a config key under ``agentic_video.system``.

    Attributes:
        overview: How the overview's frames are chosen: ``uniform``, ``rate``, ``keyframes``, ``listed`` (by an external
            frame selector, whose times the rows hold), ``retrieval`` or ``none``.
        overview_fps: Frames a second of the overview, where it is ``rate``.
        overview_max_frames: When the rate gives more frames than this, this many uniform ones replace them.
        frames_as: How frames are shown: ``images`` (each by itself, after its label) or ``video`` (evenly spaced ones
            as one clip, after the labels of its first and its last: half the tokens).
        frame_times: Which frame is meant by a time between two: ``nearest`` (the closest one) or ``released`` (the
            released code's: numbers cut to whole ones at the average rate, ``overview: rate`` in whole steps).
        min_pixels: Least pixels of a shown frame.
        max_pixels: Most pixels of a shown frame.
        size_factor: Sides of a shown frame are multiples of this (patch size times merge size of the processor).
        zoom_max_frames: Most frames of one zoom; more is refused.
        max_turns: Most generations; the last one must answer.
        max_images: Most images of an episode, the overview included.
        prompt: Name of a template in ``agentic_video/systems/<system>/prompts``, or a file.
        prompt_role: Where the instructions stand: ``user`` (before the frames, in the one user message) or ``system``
            (a system message before it, as in the paper and the released code).
        option_format: How an option is written; ``{letter}`` and ``{text}`` are filled in.
        go_on: After the frames of a zoom: how to go on.
        go_on_refused: The same after the error text of a refused call.
        last_turn_notice: Added to the observation before the last turn.
        answer_match: Rule for multiple-choice answers: ``one_letter`` (the released rule, but an answer that names two
            options is right for one of them at most), ``last_letter`` (released: right for both), ``robust`` (letters
            and option texts in any common dress), ``strict`` or ``exact``.
        unanswered: An episode without an answer in tags: ``wrong`` (paper), or ``graded``: all that was said is its
            answer (released code).
        weights: Weights of the reward.
    """

    first_view_fields: ClassVar[tuple[str, ...]] = ("overview_max_frames",)
    name: str = "videozoomer"
    overview: OverviewKind = "rate"
    overview_fps: float = 0.5
    overview_max_frames: int = 64
    frames_as: FramesAs = "images"
    frame_times: FrameTimes = "nearest"
    min_pixels: int = 25_088
    max_pixels: int = 100_352
    size_factor: int = 28
    zoom_max_frames: int = 16
    max_turns: int = 5
    max_images: int = 128
    prompt: str = "videozoomer"
    prompt_role: PromptRole = "user"
    option_format: str = "{letter}. {text}"
    go_on: str = "\nThink on inside <think> and </think>, then give your answer inside <answer> and </answer>."
    go_on_refused: str = "\nSee what was wrong and do it differently. Think on inside <think> and </think>."
    last_turn_notice: str = "\nYou have used all your looks. No further call is allowed: answer now."
    answer_match: MatchRule = "one_letter"
    unanswered: Unanswered = "wrong"
    weights: VideoZoomerWeights = field(default_factory=VideoZoomerWeights)
    stop: tuple[str, ...] = (CALL_CLOSE,)

    def __post_init__(self) -> None:
        check_choice("answer_match", self.answer_match, get_args(MatchRule))
        check_choice("unanswered", self.unanswered, get_args(Unanswered))
        check_overview(self.overview, self.overview_fps)
        check_frames_as(self.frames_as)
        check_frame_times(self.frame_times)
        check_choice("prompt_role", self.prompt_role, get_args(PromptRole))

    @property
    def view_budget(self) -> ViewBudget:
        return ViewBudget(self.min_pixels, self.max_pixels)

    def frame_size(self, info: VideoInfo) -> tuple[int, int]:
        """(width, height) at which frames of this video are shown."""
        return fit_size(info.width, info.height, PixelBudget(self.min_pixels, self.max_pixels, self.size_factor))

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        info = view.video.info
        frames = await overview_frames(
            self.overview,
            view,
            count=self.overview_max_frames,
            size=self.frame_size(info),
            fps=self.overview_fps,
            frame_times=self.frame_times,
        )
        instructions = fill(
            load_prompt(self.prompt),
            max_frames=self.zoom_max_frames,
            max_calls=self.max_turns - 1,
            duration=info.duration,
            labels=LABELS[self.frames_as],
        )
        shown = labelled(frames, overview_as(self.frames_as, self.overview))
        question = "\n" + question_text(view.qa, self.option_format)
        if self.prompt_role == "system":
            return (Message("system", (instructions.strip(),)), Message("user", (*shown, question)))
        return (Message("user", (instructions, *shown, question)),)

    def parse(self, text: str) -> Action:
        return parse_turn(text)

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        notice = self.last_turn_notice if len(view.turns) == self.max_turns - 1 else ""
        if isinstance(action, Illegal):
            # A turn without a whole call leaves nothing to reply to (released code: the dialogue ends).
            if CALL_OPEN not in view.turns[-1].text or CALL_CLOSE not in view.turns[-1].text:
                return None
            return self._refusal(action.reason, notice)
        info = view.video.info
        try:
            request = check_zoom(action.calls[0].arguments, info.duration, self.zoom_max_frames)
        except ToolError as error:
            return self._refusal(str(error), notice)
        frames = await self.look(request, view.video)
        return Observation(
            ("<tool_response>\n", *labelled(frames, self.frames_as), "\n</tool_response>" + self.go_on + notice),
            legal_calls=1,
        )

    async def look(self, request: ZoomRequest, video: Video) -> list[Frame]:
        """The frames of a legal zoom: evenly spaced, both ends included (released code)."""
        info, size = video.info, self.frame_size(video.info)
        if self.frame_times == "released":
            start, end = (max(time - info.first_time, 0.0) for time in (request.start, request.end))
            indices = floored_span(start, end, request.count, info.fps, info.num_frames)
            return await video.frames(indices, size)
        return await video.frames_at(linspace_times(request.start, request.end, request.count), size)

    def _refusal(self, reason: str, notice: str) -> Observation:
        reply = f"<tool_response>\nError: {reason}.\n</tool_response>"
        return Observation((reply + self.go_on_refused + notice,), illegal_calls=1)

    def needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        return OPEN_ENDED if qa.answer_type == "open_ended" else {}

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        answer = trajectory.answer
        if answer is None and self.unanswered == "graded":
            answer = all_said(trajectory)
        return await grade_answer(answer, qa, self.answer_match, graders.judge)

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        acc = await self.grade(trajectory, qa, graders)
        return videozoomer_score(trajectory, acc, self.weights)
