"""EVA: plans before it sees anything, then selects frames: where, how many and how large.

"EVA: Efficient Reinforcement Learning for End-to-End Video Agent". The constants are the paper's where it gives them,
the released evaluation code's elsewhere; docs/fidelity.md lists each with its source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentic_video.graders.base import Graders
from agentic_video.graders.judge import grade_answer
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.eva.grammar import (
    CALL_OPEN,
    LABELS,
    REPLY_CLOSE,
    REPLY_OPEN,
    labelled,
    parse_turn,
    shown_seconds,
)
from agentic_video.systems.eva.reward import EvaWeights, eva_score, rouge_mean
from agentic_video.systems.eva.verification import verify_choice
from agentic_video.systems.needs import Grader
from agentic_video.systems.overview import Count, Rate, VideoSystem
from agentic_video.systems.prompts import fill, load_prompt
from agentic_video.systems.shown import OverviewKind
from agentic_video.tools.base import ToolError, Video
from agentic_video.tools.frame_select import (
    NAME,
    EmptyWindow,
    Selection,
    SelectLimits,
    check_select,
    no_more_than,
    plan_selection,
)
from agentic_video.types.action import Action, Calls, Illegal, ToolCall
from agentic_video.types.message import Message, Observation, ObservationRole, Part, frames_of
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory, recorded_frames
from agentic_video.video.index import VideoInfo
from agentic_video.video.sizes import PixelBudget, fit_size


@dataclass(frozen=True)
class Eva(VideoSystem):
    """The constants of EVA; each is a config key under ``agentic_video.system``.

    Attributes:
        overview: How the overview's frames are chosen: ``none`` (EVA plans before it sees anything), ``uniform``,
            ``rate``, ``keyframes``, ``listed`` or ``retrieval``.
        max_tokens: Visual tokens of one call; a call over it gets fewer and smaller frames.
        max_frames: Most frames of one call.
        max_short_side: The shorter side is reduced to this many pixels in a call over ``max_tokens``.
        max_resize: Most that the sides of a frame are multiplied by.
        empty_window: A call whose window ends before it starts or lies outside the video is illegal (``refuse``) or
            shows the whole video (``whole_video``; so does one of no length).
        max_calls: Most calls of one turn; further ones are refused.
        end_on_refusal: Whether a turn none of whose calls can be carried out ends the episode; else the agent is told.
        observation_role: Role of replies: ``tool`` (released) or ``user``. Their tags are there anyway: a
            chat template that writes ``<tool_response>`` around a tool's message, as Qwen3-VL's does, needs ``user``.
        reminder: Follows the frames of each reply; ``{question}`` is filled in.
        csv: Whether a right choice earns only when a verifier, shown the last retrieved frames, is right too.
        verifier_prompt: Name of the template that the verifier is asked with, or a file.
    """

    name: str = "eva"
    overview: OverviewKind = "none"
    overview_frames: int = 32
    overview_fps: Rate = 0.5
    max_tokens: int = 12_000
    max_frames: int = 256
    max_short_side: int = 720
    max_resize: float = 1.0
    min_pixels: int = 3_136
    max_pixels: int = 12_845_056
    size_factor: Count = 28
    empty_window: EmptyWindow = "refuse"
    max_calls: Count = 4
    end_on_refusal: bool = True
    max_turns: int = 6
    max_images: int = 512
    prompt: str = "eva"
    observation_role: ObservationRole = "tool"
    reminder: str = "\nSelect frames again if these do not settle it.\n\nQuestion: {question}"
    option_format: str = "({letter}) {text}"
    csv: bool = True
    verifier_prompt: str = "eva_verifier"
    weights: EvaWeights = field(default_factory=EvaWeights)
    # A turn may hold several calls, so no text ends it.
    stop: tuple[str, ...] = ()
    # A class attribute, not a constant of the system (paper, section 6.2).
    taught_by_team = True

    def __post_init__(self) -> None:
        self.limits()

    def with_frames(self, count: int) -> System:
        """Without an overview, the most of one call."""
        if self.overview == "none":
            return replace(self, max_frames=count)
        more = max(0, count - self.overview_frames)
        return replace(self, overview_frames=count, max_images=self.max_images + more)

    def limits(self) -> SelectLimits:
        """Limits of one call."""
        return SelectLimits(
            max_tokens=self.max_tokens,
            max_frames=self.max_frames,
            max_short_side=self.max_short_side,
            max_resize=self.max_resize,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            factor=self.size_factor,
        )

    def overview_size(self, info: VideoInfo) -> tuple[int, int]:
        """(width, height) of this video's overview frames."""
        room = self.max_tokens * self.size_factor**2 // max(self.overview_frames, 1)
        most = max(min(self.max_pixels, room), self.min_pixels, self.size_factor**2)
        return fit_size(info.width, info.height, PixelBudget(self.min_pixels, most, self.size_factor))

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        info = view.video.info
        frames = await self.first_frames(view, self.overview_frames, self.overview_size(info))
        instructions = self.instructions(
            max_tokens=self.max_tokens,
            max_frames=self.max_frames,
            max_calls=self.max_calls,
            max_looks=self.max_turns - 1,
            factor=self.size_factor,
            labels=LABELS[self.frames_as],
        )
        facts = f"Length: {shown_seconds(info.duration)} seconds. Original resolution: {min(info.width, info.height)}p."
        times = [frame.time for frame in frames]
        overview = (*labelled(frames, times, self.overview_as), "\n") if frames else ()
        question = f"{facts}\n{self.question(view.qa)}"
        return (Message("system", (instructions.strip(),)), Message("user", (*overview, question)))

    def parse(self, text: str) -> Action:
        return parse_turn(text)

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        if isinstance(action, Illegal):
            if self.end_on_refusal or CALL_OPEN not in view.turns[-1].text:
                return None
            return self._reply(view.qa, [], [action.reason], legal=0, illegal=1)
        parts: list[Part] = []
        errors: list[str] = []
        plans: list[Selection] = []
        for number, call in enumerate(action.calls[: self.max_calls], start=1):
            try:
                plans.append(await self.plan(call, view.video))
            except ToolError as error:
                errors.append(f"call {number}: {error}")
        legal = len(plans)
        if not legal and self.end_on_refusal:
            return None
        asked = sum(len(plan.times) for plan in plans)
        shown = sum(len(recorded_frames(turn.observation)) for turn in view.turns)
        if asked + shown > self.max_images:
            return Observation((), legal, len(action.calls) - legal, unread_images=asked)
        for plan in plans:
            frames = await view.video.frames_at(plan.times, plan.size)
            parts += labelled(frames, plan.times, self.frames_as, start=len(frames_of(parts)))
        if len(action.calls) > self.max_calls:
            errors.append(f"only {self.max_calls} calls fit in a turn")
        return self._reply(view.qa, parts, errors, legal, len(action.calls) - legal)

    async def plan(self, call: ToolCall, video: Video) -> Selection:
        """The frames that a call selects."""
        if call.name != NAME:
            raise ToolError(f"there is no such tool, only {NAME}")
        info = video.info
        request = check_select(call.arguments, info, self.empty_window)
        planned = plan_selection(request, info, self.limits())
        if not info.variable_frame_rate or len(planned.times) == 1:
            return planned
        first, last = await video.frame_positions((request.start, request.end), planned.size)
        return plan_selection(no_more_than(request, first, last), info, self.limits())

    def _reply(self, qa: VideoQA, shown: Sequence[Part], errors: list[str], legal: int, illegal: int) -> Observation:
        told = "".join(f"\nError: {error}." for error in errors)
        reminder = fill(self.reminder, question=self.question(qa))
        parts = (REPLY_OPEN, *shown, f"{told}{reminder}{REPLY_CLOSE}")
        return Observation(parts, legal_calls=legal, illegal_calls=illegal)

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        if qa.answer_type == "open_ended":
            return 0.0 if trajectory.answer is None else rouge_mean(trajectory.answer, qa.answer)
        return await grade_answer(trajectory.answer, qa, self.answer_match, graders.judge)

    async def demonstration_score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        """Without self-verification, for which there is no policy yet."""
        return await replace(self, csv=False).score(trajectory, qa, graders)

    def needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        if not self.csv or qa.answer_type != "multiple_choice":
            return {}
        return {"verifier": "are multiple choice, which are verified unless agentic_video.system.csv=False"}

    def demonstration_fault(self, trajectory: Trajectory) -> str | None:
        """An answer without a look."""
        return None if trajectory.frames else "answered without a look"

    def demonstration_needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        """Without self-verification."""
        return replace(self, csv=False).needs(qa)

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        acc = credited = await self.grade(trajectory, qa, graders)
        if self.csv and acc == 1.0 and qa.answer_type == "multiple_choice":
            question = self.question(qa)
            prompt = "\n" + fill(load_prompt(self.verifier_prompt), question=question).strip()
            credited = await verify_choice(trajectory, qa, prompt, graders, self.answer_match)
        return eva_score(trajectory, acc, credited, self.weights)
