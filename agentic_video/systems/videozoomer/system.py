"""VideoZoomer: a coarse overview, then zooms into stretches of the video at a rate that the agent chooses.

Ding et al., "VideoZoomer: Reinforcement-Learned Temporal Focusing for Long Video Reasoning". The constants are the
paper's where it gives them, the released code's elsewhere; docs/fidelity.md lists each with its source.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from agentic_video.graders.answer import MatchRule
from agentic_video.graders.base import Graders
from agentic_video.graders.judge import grade_answer
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.overview import PixelBoundedSystem, Rate
from agentic_video.systems.shown import OverviewKind
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
from agentic_video.video.sampling import FrameTimes, floored_span, linspace_times

PromptRole = Literal["user", "system"]
"""Role of the instructions: in the user's message before the frames, or a system message (paper, released code)."""

Unanswered = Literal["wrong", "graded"]
"""Treatment of an episode without an answer in tags."""


@dataclass(frozen=True)
class VideoZoomer(PixelBoundedSystem):
    """The constants of VideoZoomer; each is a config key under ``agentic_video.system``.

    Attributes:
        frame_times: Frame for a time between two: ``nearest`` (the closest one) or ``released`` (the released code's:
            numbers cut to whole ones at the average rate, ``overview: rate`` in whole steps).
        zoom_max_frames: Most frames of one zoom; more is refused.
        prompt_role: Role of the instructions: ``user`` (before the frames, in the one user message) or ``system`` (a
            system message before it, as in the paper and the released code).
        go_on: Text after the frames of a zoom.
        go_on_refused: Text after the error of a refused call.
        last_turn_notice: Added to the observation before the last turn.
        unanswered: An episode without an answer in tags: ``wrong`` (paper), or ``graded``: its whole text is its
            answer (released code).
    """

    first_view_fields: ClassVar[tuple[str, ...]] = ("overview_max_frames",)
    name: str = "videozoomer"
    overview: OverviewKind = "rate"
    overview_fps: Rate = 0.5
    overview_max_frames: int = 64
    frame_times: FrameTimes = "nearest"
    min_pixels: int = 25_088
    max_pixels: int = 100_352
    zoom_max_frames: int = 16
    max_turns: int = 5
    max_images: int = 128
    prompt: str = "videozoomer"
    prompt_role: PromptRole = "user"
    go_on: str = "\nThink on inside <think> and </think>, then give your answer inside <answer> and </answer>."
    go_on_refused: str = "\nSee what was wrong and do it differently. Think on inside <think> and </think>."
    last_turn_notice: str = "\nYou have used all your looks. No further call is allowed: answer now."
    answer_match: MatchRule = "one_letter"
    unanswered: Unanswered = "wrong"
    weights: VideoZoomerWeights = field(default_factory=VideoZoomerWeights)
    stop: tuple[str, ...] = (CALL_CLOSE,)

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        info = view.video.info
        frames = await self.first_frames(view, self.overview_max_frames, self.frame_size(info))
        instructions = self.instructions(
            max_frames=self.zoom_max_frames,
            max_calls=self.max_turns - 1,
            duration=info.duration,
            labels=LABELS[self.frames_as],
        )
        shown = labelled(frames, self.overview_as)
        question = "\n" + self.question(view.qa)
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
        try:
            request = check_zoom(action.calls[0].arguments, view.video.info.duration, self.zoom_max_frames)
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

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        answer = trajectory.answer
        if answer is None and self.unanswered == "graded":
            answer = all_said(trajectory)
        return await grade_answer(answer, qa, self.answer_match, graders.judge)

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        acc = await self.grade(trajectory, qa, graders)
        return videozoomer_score(trajectory, acc, self.weights)
