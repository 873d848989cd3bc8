"""FrameMind: rollouts of a group begin with different views of the video, then look again with two tools.

Ge et al., "FrameMind: Frame-Interleaved Video Reasoning via Reinforcement Learning". There is no released code, and the
paper's prompts are pictures: ours are our own. docs/fidelity.md lists each constant with its source.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from agentic_video.graders.answer import MatchRule
from agentic_video.graders.base import Graders
from agentic_video.systems.base import Context, EpisodeView, System
from agentic_video.systems.framemind.grammar import LABELS, TOOLS, evidence_header, labelled, parse_turn
from agentic_video.systems.framemind.ladder import FrameSampling, ladder_sampling
from agentic_video.systems.framemind.reward import FrameMindWeights, framemind_score
from agentic_video.systems.needs import Grader, judge_needs
from agentic_video.systems.overview import Count, Rate, VideoSystem
from agentic_video.tools import frame_at
from agentic_video.tools.base import ToolError, Video
from agentic_video.tools.frame_at import check_frame_at
from agentic_video.tools.video_clip import check_clip
from agentic_video.types.action import Action, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation, Part
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory
from agentic_video.video.sampling import linspace_times

NumberMatch = Literal["exact", "judge"]
"""Grading of an open-ended question whose right answer is a number: exact, or by the judge."""
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True)
class FrameMind(VideoSystem):
    """The constants of FrameMind; each is a config key under ``agentic_video.system``.

    Attributes:
        overview: How the first view's frames are chosen: ``uniform``, ``keyframes``, ``listed`` (by an external
            frame selector, whose times the rows hold), ``retrieval`` or ``none``. Not ``rate``: ``low`` and ``high``
            have their number.
        low: First view of a group's first rollout: many small frames. Validation, which has one rollout, uses it.
        high: First view of the group's last rollout: few large frames.
        group_size: Rollouts of a group, whose first views lie evenly between the two, in number and in size.
        size_factor: Sides of a first view are multiples of this (patch size times merge size of the processor).
        tool_side: Width and height in pixels of the frames that the tools show.
        clip_fps: Frames a second of a clip, between the two limits (the paper: 8 to 20 frames; the rate is ours).
        clip_min_frames: Fewest frames of a clip.
        clip_max_frames: Most frames of a clip.
        max_calls: Most calls of one turn; those beyond it are refused.
        max_images: Most images in the context at a time (Table E1; the text's 50 is less than the 64 frames of the
            first view).
        context: ``latest_evidence``: all text, but the latest turn's images only (equation 1); ``all``: everything.
        last_turn_notice: Added to the observation before the last turn.
        number_match: How an open-ended question is graded whose right answer is a number: ``exact`` (paper, E.3) or
            ``judge``.
    """

    name: str = "framemind"
    low: FrameSampling = field(default_factory=lambda: FrameSampling(frames=64, height=224, width=224))
    high: FrameSampling = field(default_factory=lambda: FrameSampling(frames=32, height=448, width=448))
    # metadata: in a config it follows the rollouts of a question
    group_size: Count = field(default=8, metadata={"config": "${actor_rollout_ref.rollout.n}"})
    size_factor: Count = 28
    tool_side: int = 448
    clip_fps: Rate = 2.0
    clip_min_frames: Count = 8
    clip_max_frames: int = 20
    max_calls: Count = 3
    max_turns: int = 3
    max_images: int = 100
    context: Context = "latest_evidence"
    prompt: str = "framemind"
    last_turn_notice: str = "\nThis is your last turn: answer now."
    answer_match: MatchRule = "exact"
    number_match: NumberMatch = "exact"
    weights: FrameMindWeights = field(default_factory=FrameMindWeights)
    stop: tuple[str, ...] = ("</turn_sum>",)

    def __post_init__(self) -> None:
        if self.overview == "rate":
            raise ValueError("overview can't be rate: the number of frames is given by low and high")
        if self.clip_max_frames < self.clip_min_frames:
            raise ValueError("clip_max_frames must not be below clip_min_frames")
        most = max(self.low.frames, self.high.frames)
        if most > self.max_images:
            raise ValueError(f"max_images is {self.max_images}, but a first view has {most} frames")

    def with_frames(self, count: int) -> System:
        """Both ends of the ladder get so many frames."""
        more = max(0, count - max(self.low.frames, self.high.frames))
        low, high = replace(self.low, frames=count), replace(self.high, frames=count)
        return replace(self, low=low, high=high, max_images=self.max_images + more)

    def first_view_counts(self) -> tuple[int, ...]:
        """Numbers of frames of the whole ladder."""
        return tuple(sorted({self.first_view(index).frames for index in range(self.group_size)}))

    def first_view(self, rollout_index: int) -> FrameSampling:
        """Number and size of a group's rollout's first frames."""
        return ladder_sampling(self.low, self.high, rollout_index, self.group_size, self.size_factor)

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        sampling = self.first_view(view.rollout_index)
        frames = await self.first_frames(view, sampling.frames, (sampling.width, sampling.height))
        instructions = self.instructions(
            max_turns=self.max_turns,
            max_calls=self.max_calls,
            clip_min_frames=self.clip_min_frames,
            clip_max_frames=self.clip_max_frames,
            duration=view.video.info.duration,
            labels=LABELS[self.frames_as],
        )
        shown = labelled(frames, self.overview_as)
        return (Message("user", (instructions, *shown, "\n" + self.question(view.qa))),)

    def parse(self, text: str) -> Action:
        return parse_turn(text, self.max_calls)

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        if isinstance(action, Illegal):
            return None
        parts: list[Part] = ["<tool_response>\n"]
        illegal = 0
        for call in action.calls:
            try:
                frames = await self.look(call, view.video)
            except ToolError as error:
                parts.append(f"ERROR: {error}.\n")
                illegal += 1
            else:
                parts += [evidence_header(call.name), *labelled(frames, self.frames_as), "\n"]
        if not action.calls:
            parts.append("No call was made.\n")
        notice = self.last_turn_notice if len(view.turns) == self.max_turns - 1 else ""
        parts.append("</tool_response>" + notice)
        return Observation(tuple(parts), legal_calls=len(action.calls) - illegal, illegal_calls=illegal)

    async def look(self, call: ToolCall, video: Video) -> list[Frame]:
        """The frames of a call in order of time, each frame once: a clip may hold fewer than it is sampled at."""
        if call.name not in TOOLS:
            raise ToolError(str(call.arguments["reason"]))
        if call.name == frame_at.NAME:
            times = [check_frame_at(call.arguments, video.info.duration)]
        else:
            info, limits = video.info, (self.clip_min_frames, self.clip_max_frames)
            shortest = min(1 / info.fps, info.duration)
            clip = check_clip(call.arguments, info.duration, self.clip_fps, *limits, shortest)
            times = linspace_times(clip.start, clip.end, clip.count)
        frames = await video.frames_at(times, (self.tool_side, self.tool_side))
        return list({frame.index: frame for frame in frames}.values())

    def drop_images(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Remove images together with the labels right before them; all other text stays."""
        following = (*parts[1:], "")
        return tuple(
            part
            for part, after in zip(parts, following, strict=True)
            if isinstance(part, str) and isinstance(after, str)
        )

    def asks_number(self, qa: VideoQA) -> bool:
        """Return True if a question's right answer is a number that must match exactly."""
        return (
            self.number_match == "exact"
            and qa.answer_type == "open_ended"
            and _NUMBER.fullmatch(qa.answer.strip()) is not None
        )

    def needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        return {} if self.asks_number(qa) else judge_needs(qa)

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        if self.asks_number(qa):
            return float(trajectory.answer is not None and trajectory.answer.strip() == qa.answer.strip())
        return await super().grade(trajectory, qa, graders)

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        acc = await self.grade(trajectory, qa, graders)
        return framemind_score(trajectory, acc, self.weights)
