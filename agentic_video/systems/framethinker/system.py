"""FrameThinker: a sparse scan, then looks at stretches of the video by frame numbers, helped by a lookup of the frame
at a clock time.

He et al., "FrameThinker: Learning to Think with Long Videos via Multi-Turn Frame Spotlighting". The constants are the
paper's where it gives them, the released code's elsewhere; docs/fidelity.md lists each with its source.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, get_args

from agentic_video.graders.answer import MatchRule
from agentic_video.graders.base import Graders
from agentic_video.graders.judge import grade_answer
from agentic_video.systems.base import OPEN_ENDED, EpisodeView, Grader, System
from agentic_video.systems.framethinker.consistency import ConsistencyRules, failed_checks
from agentic_video.systems.framethinker.grammar import ACTION_CLOSE, LABELS, labelled, parse_turn, read_steps
from agentic_video.systems.framethinker.reward import FrameThinkerWeights, framethinker_score
from agentic_video.systems.overview import OverviewKind, check_frame_times, check_overview, overview_frames
from agentic_video.systems.prompts import fill, load_prompt, question_text
from agentic_video.systems.shown import FramesAs, check_frames_as, overview_as
from agentic_video.tools.base import ToolError
from agentic_video.tools.choose_frames import chosen_indices
from agentic_video.tools.frame_number import number_at, reply_text
from agentic_video.types.action import Action, Calls, Illegal
from agentic_video.types.message import Message, Observation
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory
from agentic_video.utils.choices import check_choice
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
    attempts: int = 2
    prompt: str = "framethinker_direct"

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {self.attempts}")


@dataclass(frozen=True)
class FrameThinker(System):
    """The constants of FrameThinker; each is a config key under ``agentic_video.system``.

    Attributes:
        overview: How the overview's frames are chosen: ``uniform``, ``rate``, ``keyframes``, ``listed`` (by an external
            frame selector, whose times the rows hold), ``retrieval`` or ``none``.
        overview_fps: Frames a second of the overview, for ``overview: rate``.
        overview_frames: Most frames of the overview.
        frames_as: How frames are shown: ``images`` (each by itself, after its label) or ``video`` (evenly spaced ones
            as one clip, after the labels of its first and its last: half the tokens).
        frame_times: Which frame of an evenly spread overview is meant by a place between two: ``nearest`` (the
            closest one) or ``released`` (its number cut to a whole one). Looks are always cut.
        look_frames: Frames of one look.
        max_width: Frames are scaled down to at most this width in pixels.
        max_height: The same for the height.
        long_seconds: A video that lasts longer than this is a long one: for it the four constants that follow replace
            the four above.
        long_overview_frames: See ``overview_frames``.
        long_look_frames: See ``look_frames``.
        long_max_width: See ``max_width``.
        long_max_height: See ``max_height``.
        max_turns: Most generations; the last one must answer.
        max_images: Most images of an episode, the overview included.
        prompt: Name of a template in ``agentic_video/systems/<system>/prompts``, or a file.
        option_format: How an option is written; ``{letter}`` and ``{text}`` are filled in.
        answer_match: Rule for multiple-choice answers: ``robust`` (letters and option texts in any common dress),
            ``exact`` (released: the answer's first word equals the letter), ``strict``, ``one_letter`` or
            ``last_letter``.
        weights: Weights of the reward.
        ccv: Cognitive Consistency Verification: a failed check takes the whole reward.
        guard: The same checks as a guard in evaluation: so many attempts, then a direct answer.
    """

    first_view_fields: ClassVar[tuple[str, ...]] = ("overview_frames", "long_overview_frames")
    name: str = "framethinker"
    overview: OverviewKind = "uniform"
    overview_fps: float = 0.5
    overview_frames: int = 8
    frames_as: FramesAs = "images"
    frame_times: FrameTimes = "nearest"
    look_frames: int = 8
    max_width: int = 640
    max_height: int = 360
    long_seconds: float = 300.0
    long_overview_frames: int = 12
    long_look_frames: int = 12
    long_max_width: int = 448
    long_max_height: int = 252
    max_turns: int = 5
    max_images: int = 128
    prompt: str = "framethinker"
    option_format: str = "{letter}. {text}"
    answer_match: MatchRule = "robust"
    weights: FrameThinkerWeights = field(default_factory=FrameThinkerWeights)
    ccv: ConsistencyRules = field(default_factory=ConsistencyRules)
    guard: GuardRules = field(default_factory=GuardRules)
    stop: tuple[str, ...] = (ACTION_CLOSE,)

    def __post_init__(self) -> None:
        check_choice("answer_match", self.answer_match, get_args(MatchRule))
        for key in ("look_frames", "long_look_frames"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, got {getattr(self, key)}")
        check_overview(self.overview, self.overview_fps)
        check_frames_as(self.frames_as)
        check_frame_times(self.frame_times)

    def is_long(self, info: VideoInfo) -> bool:
        """Whether a video gets more and smaller frames."""
        return info.duration > self.long_seconds

    def frame_size(self, info: VideoInfo) -> tuple[int, int]:
        """(width, height) at which frames of this video are shown."""
        box = (self.long_max_width, self.long_max_height) if self.is_long(info) else (self.max_width, self.max_height)
        return fit_within(info.width, info.height, *box)

    def frames_per_look(self, info: VideoInfo) -> int:
        """Frames of one look into this video."""
        return self.long_look_frames if self.is_long(info) else self.look_frames

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        info = view.video.info
        count = self.long_overview_frames if self.is_long(info) else self.overview_frames
        frames = await overview_frames(
            self.overview,
            view,
            count=count,
            size=self.frame_size(info),
            fps=self.overview_fps,
            frame_times=self.frame_times,
        )
        instructions = fill(
            load_prompt(self.prompt),
            frames=self.frames_per_look(info),
            max_calls=self.max_turns - 1,
            labels=LABELS[self.frames_as],
        ).strip()
        question = question_text(view.qa, self.option_format)
        shown = labelled(frames, overview_as(self.frames_as, self.overview))
        return (Message("system", (instructions,)), Message("user", (question + "\n", *shown)))

    def parse(self, text: str) -> Action:
        return parse_turn(text)

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        # Whatever can't be carried out ends the episode (paper, section 3.3.1).
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
        # Without a single turn (the engine failed, the opening doesn't fit) there is nothing to do better.
        if not self.guard.enable or len(attempts) > self.guard.attempts or not last.turns:
            return None
        if last.answer is not None and not failed_checks(read_steps(last), self.ccv):
            return None
        return self if len(attempts) < self.guard.attempts else self.direct()

    def direct(self) -> "FrameThinker":
        """The fallback: the same overview, and an answer at once."""
        return replace(self, prompt=self.guard.prompt, max_turns=1)

    def demonstration_fault(self, trajectory: Trajectory) -> str | None:
        failed = failed_checks(read_steps(trajectory), self.ccv)
        return f"inconsistent: {failed[0]}" if failed else None

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        answer = trajectory.answer
        if answer is not None and qa.answer_type == "multiple_choice" and self.answer_match == "exact":
            # The released code compares the answer's first word. The other rules see all of it, so that a list of
            # options isn't an answer.
            answer = (answer.split(maxsplit=1) or [""])[0]
        return await grade_answer(answer, qa, self.answer_match, graders.judge)

    def needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        return OPEN_ENDED if qa.answer_type == "open_ended" else {}

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        steps = read_steps(trajectory)
        failed = failed_checks(steps, self.ccv) if self.ccv.enable else ()
        # As in the released data, whose questions carry their options.
        asks_time = _CLOCK_TIME.search(question_text(qa, self.option_format)) is not None
        looked_up = asks_time and any(number > 0 for number in steps.returned_numbers)
        acc = await self.grade(trajectory, qa, graders)
        return framethinker_score(trajectory, acc, looked_up=looked_up, failed=failed, weights=self.weights)
