"""FrameThinker: a sparse scan, then looks at stretches of the video by frame numbers, helped by a lookup of the frame
at a clock time.

He et al., "FrameThinker: Learning to Think with Long Videos via Multi-Turn Frame Spotlighting". The constants are the
paper's where it gives them, the released code's elsewhere; docs/fidelity.md lists each with its source.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from agentic_video.graders.base import Graders
from agentic_video.graders.judge import grade_answer
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.framethinker.consistency import ConsistencyRules, failed_checks
from agentic_video.systems.framethinker.grammar import ACTION_CLOSE, LABELS, labelled, parse_turn, read_steps
from agentic_video.systems.framethinker.reward import FrameThinkerWeights, framethinker_score
from agentic_video.systems.overview import Count, Rate, VideoSystem
from agentic_video.tools.base import ToolError
from agentic_video.tools.choose_frames import chosen_indices
from agentic_video.tools.frame_number import number_at, reply_text
from agentic_video.types.action import Action, Calls, Illegal
from agentic_video.types.message import Message, Observation
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory
from agentic_video.video.index import VideoInfo
from agentic_video.video.sampling import FrameTimes
from agentic_video.video.sizes import fit_within

_CLOCK_TIME = re.compile(r"[0-9]:[0-9]")


@dataclass(frozen=True)
class GuardRules:
    """The consistency checks as a guard in evaluation (paper, section 3.3.2 and appendix B.2).

    Attributes:
        enable: Whether an attempt that fails a check, or doesn't answer, is played again.
        attempts: How often the question is played with all actions; then it is answered directly (released code: 2).
        prompt: Template of the direct answer.
    """

    enable: bool = True
    attempts: Count = 2
    prompt: str = "framethinker_direct"


@dataclass(frozen=True)
class FrameThinker(VideoSystem):
    """The constants of FrameThinker; each is a config key under ``agentic_video.system``.

    Attributes:
        frame_times: Frame of an evenly spread overview for a place between two: ``nearest`` (the closest one) or
            ``released`` (its number cut to a whole one). Looks are always cut.
        look_frames: Frames of one look.
        max_width: Frames are scaled down to at most this width in pixels.
        max_height: The same for the height.
        long_seconds: For a longer video the four constants that follow replace the four above.
        long_overview_frames: See ``overview_frames``.
        long_look_frames: See ``look_frames``.
        long_max_width: See ``max_width``.
        long_max_height: See ``max_height``.
        ccv: Cognitive Consistency Verification: a failed check takes the whole reward.
        guard: The same checks as a guard in evaluation: so many attempts, then a direct answer.
    """

    first_view_fields: ClassVar[tuple[str, ...]] = ("overview_frames", "long_overview_frames")
    name: str = "framethinker"
    overview_fps: Rate = 0.5
    overview_frames: int = 8
    frame_times: FrameTimes = "nearest"
    look_frames: Count = 8
    max_width: int = 640
    max_height: int = 360
    long_seconds: float = 300.0
    long_overview_frames: int = 12
    long_look_frames: Count = 12
    long_max_width: int = 448
    long_max_height: int = 252
    max_turns: int = 5
    max_images: int = 128
    prompt: str = "framethinker"
    weights: FrameThinkerWeights = field(default_factory=FrameThinkerWeights)
    ccv: ConsistencyRules = field(default_factory=ConsistencyRules)
    guard: GuardRules = field(default_factory=GuardRules)
    stop: tuple[str, ...] = (ACTION_CLOSE,)

    def is_long(self, info: VideoInfo) -> bool:
        """Return True if a video gets more and smaller frames."""
        return info.duration > self.long_seconds

    def frame_size(self, info: VideoInfo) -> tuple[int, int]:
        """(width, height) of this video's shown frames."""
        box = (self.long_max_width, self.long_max_height) if self.is_long(info) else (self.max_width, self.max_height)
        return fit_within(info.width, info.height, *box)

    def frames_per_look(self, info: VideoInfo) -> int:
        """Frames of one look into this video."""
        return self.long_look_frames if self.is_long(info) else self.look_frames

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        info = view.video.info
        count = self.long_overview_frames if self.is_long(info) else self.overview_frames
        frames = await self.first_frames(view, count, self.frame_size(info))
        instructions = self.instructions(
            frames=self.frames_per_look(info), max_calls=self.max_turns - 1, labels=LABELS[self.frames_as]
        ).strip()
        shown = labelled(frames, self.overview_as)
        return (Message("system", (instructions,)), Message("user", (self.question(view.qa) + "\n", *shown)))

    def parse(self, text: str) -> Action:
        return parse_turn(text)

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        # An action that can't be carried out ends the episode (paper, section 3.3.1).
        if isinstance(action, Illegal):
            return None
        call, info = action.calls[0], view.video.info
        try:
            if call.name == "frame_number":
                number = number_at(call.arguments, info.fps, info.first_time)
                return Observation((reply_text(call.arguments["time"], number),), legal_calls=1)
            indices = chosen_indices(call.arguments, info.num_frames, self.frames_per_look(info))
        except ToolError:
            return None
        frames = await view.video.frames(indices, self.frame_size(info))
        return Observation(labelled(frames, self.frames_as), legal_calls=1)

    def retry(self, attempts: Sequence[Trajectory]) -> System | None:
        """Play again after an attempt that fails a consistency check or doesn't answer, at last without any calls.

        The checks see whole attempts, as training and validation share :meth:`observe`, and training must not be
        guarded. The verdict is that of a guard at each action, since no later action mends a failed check.
        """
        last = attempts[-1]
        # Without a single turn (the engine failed, the opening doesn't fit) another attempt can't help.
        if not self.guard.enable or len(attempts) > self.guard.attempts or not last.turns:
            return None
        if last.answer is not None and not failed_checks(read_steps(last), self.ccv):
            return None
        return self if len(attempts) < self.guard.attempts else self.direct()

    def direct(self) -> "FrameThinker":
        """The fallback: the same overview, and an answer at once."""
        return replace(self, prompt=self.guard.prompt, max_turns=1)

    def demonstration_fault(self, trajectory: Trajectory) -> str | None:
        """A failed consistency check."""
        failed = failed_checks(read_steps(trajectory), self.ccv)
        return f"inconsistent: {failed[0]}" if failed else None

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        answer = trajectory.answer
        if answer is not None and qa.answer_type == "multiple_choice" and self.answer_match == "exact":
            # The released code compares the answer's first word. The other rules see all of it, so that a list of
            # options isn't an answer.
            answer = (answer.split(maxsplit=1) or [""])[0]
        return await grade_answer(answer, qa, self.answer_match, graders.judge)

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        steps = read_steps(trajectory)
        failed = failed_checks(steps, self.ccv) if self.ccv.enable else ()
        # As in the released data, whose questions carry their options.
        asks_time = _CLOCK_TIME.search(self.question(qa)) is not None
        looked_up = asks_time and any(number > 0 for number in steps.returned_numbers)
        acc = await self.grade(trajectory, qa, graders)
        return framethinker_score(trajectory, acc, looked_up=looked_up, failed=failed, weights=self.weights)
