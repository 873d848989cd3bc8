"""VideoBrain: a uniform overview, then more frames by place (a range) or by content (a description), if needed at all.

"VideoBrain: Learning Adaptive Frame Sampling for Long Video Understanding". The constants are the paper's where it
gives them, the released code's elsewhere; docs/fidelity.md lists each with its source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from agentic_video.graders.answer import MatchRule, match_choice
from agentic_video.graders.base import Graders
from agentic_video.graders.judge import EndpointError, Judge
from agentic_video.grounding.answer import grade_intervals
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.needs import Grader, judge_needs
from agentic_video.systems.overview import Count, Rate, VideoSystem
from agentic_video.systems.prompts import fill, load_prompt
from agentic_video.systems.shown import FramesAs
from agentic_video.systems.videobrain.grammar import (
    CALL_CLOSE,
    HOW_MANY,
    LABELS,
    OTHERWISE,
    TOOLS,
    labelled,
    parse_turn,
)
from agentic_video.systems.videobrain.reward import (
    Unclassed,
    VideoBrainWeights,
    gate_fault,
    question_class,
    videobrain_score,
)
from agentic_video.tools.base import ToolError, Video
from agentic_video.tools.clip_sample import check_clip
from agentic_video.tools.uniform_sample import check_uniform
from agentic_video.types.action import Action, Calls, Illegal, ToolCall
from agentic_video.types.message import Message, Observation
from agentic_video.types.row import INTERVAL_TYPES, LETTERS, QuestionClass, VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory
from agentic_video.video.index import VideoInfo
from agentic_video.video.sampling import FrameTimes
from agentic_video.video.sizes import fit_within

AnswerMatch = Literal["judge"] | MatchRule
IllegalCall = Literal["told", "end"]
"""After a call that can't be carried out: ``told``: an error text, the dialogue continues; ``end``: the episode ends
(released code)."""


@dataclass(frozen=True)
class VideoBrain(VideoSystem):
    """The constants of VideoBrain; each is a config key under ``agentic_video.system``.

    Attributes:
        frame_times: Frame of an evenly spread overview or ``uniform_sample`` for a place between two:
            ``nearest`` (the closest one) or ``released`` (its number cut to a whole one).
        max_width: A shown frame is at most so many pixels wide; its aspect ratio is kept.
        max_height: And at most so many pixels high.
        size_factor: Sides of a shown frame are multiples of this (Qwen3-VL: patch size 16 times merge size 2).
        uniform_sample: Whether there is the tool ``uniform_sample``. Off (ablation "w/o Uniform Agent"), instructions
            don't name it, and a call to it is one to an unknown tool.
        clip_sample: The same for ``clip_sample`` (ablation "w/o CLIP Agent").
        uniform_frames: Frames of one ``uniform_sample``; a range of fewer frames is refused.
        clip_frames: Frames of one ``clip_sample``.
        clip_candidates: How many frames a ``clip_sample`` compares.
        clip_candidates_long: And in a long video.
        long_video_frames: A video with more frames than this is long.
        max_prompt_chars: A ``clip_sample`` with a longer prompt is refused.
        illegal_call: After a call that can't be carried out: ``told`` (an error text, and the dialogue continues) or
            ``end`` (the episode ends, as in the released code).
        turn_notice: Precedes the frames of a call.
        last_turn_notice: The same before the last turn.
        answer_match: Grading of multiple choice: ``judge`` (published), or a rule, which needs no judge (``robust``,
            ``strict``, ``exact``, ``one_letter``, ``last_letter``).
        duplicate_margin: Two ranges whose ends are both within so many frames count as the same call.
        format_gate: Whether an episode that breaks the format earns nothing. Off (ablation "w/o Reward Format Check"),
            the format is neither checked nor paid.
        unclassed: A row without a class is ``refused``, earns nothing for the use of tools (``none``; ablation "w/o RL
            Classified Dataset"), or counts as ``direct``, ``adaptive`` or ``active``.
    """

    name: str = "videobrain"
    overview_frames: int = 16
    overview_fps: Rate = 0.5
    frame_times: FrameTimes = "nearest"
    max_width: int = 640
    max_height: int = 360
    size_factor: Count = 32
    uniform_sample: bool = True
    clip_sample: bool = True
    uniform_frames: int = 8
    clip_frames: int = 4
    clip_candidates: int = 128
    clip_candidates_long: int = 256
    long_video_frames: int = 20_000
    max_prompt_chars: int = 200
    illegal_call: IllegalCall = "told"
    max_turns: int = 5
    max_images: int = 128
    prompt: str = "videobrain"
    turn_notice: str = "Here is what you asked for. Think, then make a different call or answer."
    last_turn_notice: str = "This is your last turn. No further call is allowed: think, then answer."
    answer_match: AnswerMatch = "judge"  # type: ignore[assignment]
    duplicate_margin: int = 1
    format_gate: bool = True
    unclassed: Unclassed = "refused"
    weights: VideoBrainWeights = field(default_factory=VideoBrainWeights)
    stop: tuple[str, ...] = (CALL_CLOSE,)

    def __post_init__(self) -> None:
        if not self.tools:
            raise ValueError("uniform_sample and clip_sample are both off: one of them must be on")

        gone = [name for name in TOOLS if name not in self.tools]
        if gone and gone[0] in load_prompt(self.prompt):
            raise ValueError(f"{gone[0]} is off, but the instructions of prompt={self.prompt} name it")

    @property
    def tools(self) -> tuple[str, ...]:
        """The available tools."""
        return tuple(name for name in TOOLS if getattr(self, name))

    def class_of(self, qa: VideoQA) -> QuestionClass | None:
        """The class of a row; None where the use of tools earns nothing."""
        if qa.extra.get("class") is None and self.unclassed != "refused":
            return None if self.unclassed == "none" else self.unclassed
        return question_class(qa)

    def frame_size(self, info: VideoInfo) -> tuple[int, int]:
        """(width, height) of this video's shown frames."""
        return fit_within(info.width, info.height, self.max_width, self.max_height, self.size_factor)

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        info = view.video.info
        numbers = {
            "uniform_frames": self.uniform_frames,
            "clip_frames": self.clip_frames,
            "max_turns": self.max_turns,
            "num_frames": info.num_frames,
            "fps": info.fps,
        }
        instructions = self.instructions(
            **numbers,
            tools="\n\n".join(fill(load_prompt(f"videobrain_{name}").strip(), **numbers) for name in self.tools),
            names=" or ".join(self.tools),
            how_many=HOW_MANY[len(self.tools)],
            otherwise=OTHERWISE[self.tools],
            labels=LABELS[self.frames_as],
        )
        frames = await self.first_frames(view, self.overview_frames, self.frame_size(info))
        shown = labelled(frames, self.overview_as)
        return (Message("system", (instructions.strip(),)), Message("user", (self.question(view.qa), *shown)))

    def parse(self, text: str) -> Action:
        return parse_turn(text)

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        notice = self.last_turn_notice if len(view.turns) == self.max_turns - 1 else self.turn_notice
        if isinstance(action, Illegal):
            # A turn without any call leaves nothing to reply to.
            told = self.illegal_call == "told" and CALL_CLOSE in view.turns[-1].text
            return _refusal(action.reason, notice) if told else None
        try:
            indices = await self.choose(action.calls[0], view.video)
        except ToolError as error:
            return _refusal(str(error), notice) if self.illegal_call == "told" else None
        frames = await view.video.frames(indices, self.frame_size(view.video.info))
        # the frames that match a description lie anywhere
        frames_as: FramesAs = self.frames_as if action.calls[0].name == "uniform_sample" else "images"
        return Observation((notice, *labelled(frames, frames_as)), legal_calls=1)

    async def choose(self, call: ToolCall, video: Video) -> list[int]:
        """The frames that a call asks for, in order of time."""
        total = video.info.num_frames
        if call.name not in self.tools:
            raise ToolError(
                f"there is no such tool; there {'are' if self.tools[1:] else 'is'} {' and '.join(self.tools)}"
            )
        if call.name == "uniform_sample":
            return check_uniform(call.arguments, total, self.uniform_frames, self.frame_times)
        candidates = self.clip_candidates_long if total > self.long_video_frames else self.clip_candidates
        request = check_clip(call.arguments, total, candidates=candidates, max_prompt_chars=self.max_prompt_chars)
        if not video.can_search:
            raise ToolError("clip_sample can't be carried out: there is no retrieval model here")
        return await video.best_matches(request.prompt, request.candidates, self.clip_frames)

    async def demonstration_score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        """Only the reward needs a row's class, which may come later."""
        return await self.score(trajectory, _classed(qa), graders)

    def demonstration_fault(self, trajectory: Trajectory) -> str | None:
        """The broken rule of the format gate."""
        return gate_fault(trajectory, self.duplicate_margin, self.tools)

    def needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        self.class_of(qa)
        if qa.answer_type == "multiple_choice" and self.answer_match == "judge":
            return {"judge": "are multiple choice, judged unless agentic_video.system.answer_match=robust"}
        return judge_needs(qa)

    def demonstration_needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        """The class isn't needed."""
        return self.needs(_classed(qa))

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        kind = self.class_of(qa)
        passed = gate_fault(trajectory, self.duplicate_margin, self.tools) is None
        # An episode that fails the gate isn't graded (paper, appendix C.4.2): it earns nothing either way.
        acc = await self.grade(trajectory, qa, graders) if passed or not self.format_gate else 0.0
        return videobrain_score(trajectory, kind, acc, passed, self.weights, gated=self.format_gate)

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        answer = trajectory.answer
        return 0.0 if answer is None else await self.accuracy(answer, qa, graders.judge)

    async def accuracy(self, answer: str, qa: VideoQA, judge: Judge | None) -> float:
        """0 or 1 for multiple choice, 0 to 1 for open-ended questions (paper, appendix C.3) and intervals."""
        if qa.answer_type in INTERVAL_TYPES:
            return grade_intervals(answer, qa)
        choice = qa.answer_type == "multiple_choice"
        if choice and self.answer_match != "judge":
            return float(match_choice(answer, qa, self.answer_match))
        if judge is None:
            raise EndpointError(f"row {qa.id}: a judge is needed")
        if not choice:
            return await judge.grade(qa.question, qa.answer, answer, scale="unit")
        gold = fill(self.option_format, letter=qa.answer, text=qa.options[LETTERS.index(qa.answer)])
        return await judge.grade(self.question(qa), gold, answer)


def _classed(qa: VideoQA) -> VideoQA:
    """A row with a class: its own, or where it has none yet one that demands neither tools nor none."""
    return replace(qa, extra={"class": "adaptive", **qa.extra})


def _refusal(reason: str, notice: str) -> Observation:
    return Observation((f"Error: {reason}.\n{notice}",), illegal_calls=1)
