"""The plain baseline of every comparison: evenly spaced frames, the question, an answer. No tools, one turn."""

import re
from dataclasses import dataclass, field, replace

from agentic_video.graders.answer import MatchRule
from agentic_video.graders.base import Graders
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.blocks import last_block
from agentic_video.systems.overview import ViewBudget, view_budget
from agentic_video.systems.prompts import OPTION_FORMAT, load_prompt, question_text
from agentic_video.systems.shown import FramesAs, one_clip
from agentic_video.types.action import Action, Answer, Calls, Illegal
from agentic_video.types.message import Message, Observation
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory
from agentic_video.video.index import VideoInfo
from agentic_video.video.sampling import MAX_COUNT, uniform_indices
from agentic_video.video.sizes import PixelBudget, fit_size

_ANSWER_CLOSE = "</answer>"


@dataclass(frozen=True)
class Baseline(System):
    """One look at uniform frames."""

    frames: int  # evenly spaced frames that are shown; 0 asks the question alone
    name: str = "baseline"
    min_pixels: int = 25_088  # least pixels of a shown frame
    max_pixels: int = 100_352  # most pixels of a shown frame
    # visual tokens of all frames together, which bound a frame's size by its share of them (two frames of a clip have
    # one). None: no such bound
    view_tokens: int | None = None
    size_factor: int = 28  # sides of a shown frame are multiples of this
    frames_as: FramesAs = "images"  # as `images`, or as one `video`
    # name of a template in `agentic_video/systems/prompts`, or a file: `baseline` asks for the answer alone,
    # `baseline_cot` for a chain of thought before it
    prompt: str = "baseline"
    option_format: str = OPTION_FORMAT  # how an option is written; `{letter}` and `{text}` are filled in
    answer_match: MatchRule = "robust"  # rule for multiple-choice answers
    max_turns: int = 1
    max_images: int = field(init=False)
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.frames <= MAX_COUNT:
            raise ValueError(f"the baseline shows from 0 to {MAX_COUNT} frames, got {self.frames}")
        object.__setattr__(self, "max_images", self.frames)

    def with_frames(self, count: int) -> System:
        return replace(self, frames=count)

    def with_calls(self, count: int) -> System:
        raise ValueError("the baseline makes no calls")

    def frame_size(self, info: VideoInfo) -> tuple[int, int]:
        """(width, height) at which frames of this video are shown."""
        most = self.max_pixels
        if self.view_tokens is not None:
            count = max(1, min(self.frames, info.num_frames))
            pictures = count if self.frames_as == "images" else -(-count // 2)
            most = min(most, max(1, self.view_tokens // pictures) * self.size_factor**2)
        return fit_size(info.width, info.height, PixelBudget(min(self.min_pixels, most), most, self.size_factor))

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        info = view.video.info
        indices = uniform_indices(info.num_frames, self.frames) if self.frames else []
        frames = await view.video.frames(indices, self.frame_size(info)) if indices else []
        question = question_text(view.qa, self.option_format)
        clip = one_clip(self.frames_as, frames)
        return (Message("user", (*((clip,) if clip else frames), f"\n{question}\n{load_prompt(self.prompt).strip()}")),)

    def parse(self, text: str) -> Action:
        """The text inside the last answer tags, else all that follows the thoughts."""
        closed = text[: text.rfind(_ANSWER_CLOSE) + len(_ANSWER_CLOSE)] if _ANSWER_CLOSE in text else ""
        answer = last_block(closed, "answer")
        answer = re.split(r"</think(?:ing)?>", text)[-1] if answer is None else answer
        return Answer(answer.strip()) if answer.strip() else Illegal("the answer is empty")

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        return None

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        acc = await self.grade(trajectory, qa, graders)
        return Score(acc, acc, float(trajectory.answer is not None), {"acc": acc})


def baseline_of(system: System, frames: int, *, tiny: bool, prompt: str = "baseline") -> System:
    """The plain baseline of a system, with frames as large as the system's own."""
    factor = system.size_factor
    frames_as: FramesAs = getattr(system, "frames_as", "images")
    budget = ViewBudget(factor**2, factor**2) if tiny else view_budget(system)
    return Baseline(
        frames,
        min_pixels=budget.min_pixels,
        max_pixels=budget.max_pixels,
        view_tokens=budget.tokens,
        size_factor=factor,
        frames_as=frames_as,
        prompt=prompt,
        option_format=getattr(system, "option_format", OPTION_FORMAT),
    )
