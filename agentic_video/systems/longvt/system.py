"""LongVT: skims the whole video, then crops stretches of it; its reward pays for how the last crop covers the evidence.

Yang et al., "LongVT: Incentivizing 'Thinking with Long Videos' via Native Tool Calling". The constants are the paper's
where it gives them, the released code's elsewhere; docs/fidelity.md lists each with its source.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, ClassVar, Literal

from agentic_video.graders.base import Graders
from agentic_video.graders.judge import grade_answer
from agentic_video.grounding.looks import NOTE
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.longvt.grammar import parse_turn, reply
from agentic_video.systems.longvt.reward import LongVTWeights, TimeReward, format_ok, longvt_score, time_reward
from agentic_video.systems.overview import Count, PixelBoundedSystem, Rate
from agentic_video.systems.prompts import fill, load_prompt
from agentic_video.systems.shown import OverviewKind, one_clip
from agentic_video.tools.base import ToolError, Video
from agentic_video.tools.crop_video import ARGUMENTS, NAME, SCHEMA, CropLimits, CropRequest, PastEnd, check_crop
from agentic_video.types.action import Action, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation, Part
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import EndReason, Trajectory, Turn
from agentic_video.video.sampling import linspace_times

VideoPath = Literal["path", "name", "none"]
"""The video's path as the agent is told it and repeats it in each call: ``path``, the file's ``name``, or ``none``."""


@dataclass(frozen=True)
class LongVT(PixelBoundedSystem):
    """The constants of LongVT; each is a config key under ``agentic_video.system``.

    Attributes:
        frames_as: How the first view is shown: ``images`` (in RL) or ``video`` (one clip, as in SFT and evaluation:
            half the tokens). A crop's frames are images.
        crop_fps: Frames a second of a crop.
        crop_min_frames: Least frames of a crop.
        crop_max_frames: Most frames of a crop.
        crop_past_end: A crop that ends after the video does is ``refused`` (in RL) or ``clamped`` (the released script
            for one question).
        video_path: The video's path as the agent is told it and repeats it in its calls: ``path``, ``name`` (the
            file's alone) or ``none`` (calls need none).
        max_calls: Most calls of an episode, refused ones included: the reply to the last one ends it.
        max_turns: Most generations.
        task_prompt: Template, or file, of what follows the frames in the user's message.
        path_line: End of the user's message where the path is told; ``{path}`` is filled in.
        crop_notice: Follows the frames of a crop.
        max_answer_chars: An answer of so many characters or more earns nothing, nor does its format.
        time_reward: What the last crop is paid for: ``iou`` with the gold window, or ``recall`` of it.
    """

    first_view_fields: ClassVar[tuple[str, ...]] = ("overview_max_frames",)
    name: str = "longvt"
    overview: OverviewKind = "rate"
    overview_fps: Rate = 1.0
    overview_max_frames: int = 512
    crop_fps: Rate = 1.0
    crop_min_frames: int = 1
    crop_max_frames: int = 128
    crop_past_end: PastEnd = "refused"
    video_path: VideoPath = "path"
    max_calls: Count = 5
    max_turns: int = 5
    max_images: int = 1_152
    prompt: str = "longvt"
    task_prompt: str = "longvt_task"
    path_line: str = "\n\nThe path of this video is {path}"
    crop_notice: str = "These are the frames of the stretch, in order."
    max_answer_chars: int = 1_000
    time_reward: TimeReward = "iou"
    weights: LongVTWeights = field(default_factory=LongVTWeights)
    # A turn may hold several calls, so no text ends it.
    stop: tuple[str, ...] = ()
    # Class attributes, not constants: the last call counts for the reward (released code).
    run_last_call = True

    def __post_init__(self) -> None:
        self.limits()

    def with_calls(self, count: int) -> System:
        """One more call is allowed than can be followed by an answer."""
        return replace(self, max_turns=count + 1, max_calls=count + 1) if count else self.direct()

    def direct(self) -> System:
        """The user's message, too, has no word of tools."""
        return replace(self, max_turns=1, prompt="direct", task_prompt="longvt_question", video_path="none")

    def limits(self) -> CropLimits:
        """Limits of one crop."""
        return CropLimits(self.crop_fps, self.crop_min_frames, self.crop_max_frames, self.crop_past_end)

    def named(self, video: Video) -> str:
        """The video's path as the agent is told it; empty where it isn't."""
        return {"path": video.path, "name": PurePath(video.path).name, "none": ""}[self.video_path]

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        info, path = view.video.info, self.named(view.video)
        frames = await self.first_frames(view, self.overview_max_frames, self.frame_size(info))
        instructions = self.instructions(
            tools=json.dumps(_schema(with_path=bool(path))),
            call=json.dumps({"name": NAME, "arguments": _example(path)}, ensure_ascii=False),
            fps=self.crop_fps,
            max_frames=self.crop_max_frames,
            looks=min(self.max_calls, self.max_turns) - 1,
        )
        asked = fill(
            load_prompt(self.task_prompt),
            question=self.question(view.qa),
            path=fill(self.path_line, path=path) if path else "",
        )
        clip = one_clip(self.overview_as, frames)
        shown: tuple[Part, ...] = (clip,) if clip else tuple(frames)
        return (Message("system", (instructions.strip(),)), Message("user", (*shown, asked.rstrip())))

    def parse(self, text: str) -> Action:
        return parse_turn(text)

    def is_last(self, view: EpisodeView) -> bool:
        """The reply to the last call ends the episode, too."""
        return super().is_last(view) or _asked(view.turns) >= self.max_calls

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        if isinstance(action, Illegal):
            return None
        parts: list[Part] = []
        legal = 0
        for call in self._carried_out(view.turns[-1], view.turns[:-1]):
            try:
                crop = self.crop(call, view.video)
            except ToolError as error:
                first, *rest = reply((), f"Error: {error}.")
            else:
                legal += 1
                first, *rest = reply(await self.look(crop, view.video), self.crop_notice)
            parts += ["\n" + str(first) if parts else first, *rest]
        return Observation(tuple(parts), legal_calls=legal, illegal_calls=len(action.calls) - legal)

    def crop(self, call: ToolCall, video: Video) -> CropRequest:
        """The crop that a call asks for."""
        path = self.named(video)
        return check_crop(call.arguments, video.info.duration, self.limits(), (path,) if path else ())

    async def look(self, crop: CropRequest, video: Video) -> list[Frame]:
        """The frames of a legal crop: evenly spaced, both ends included."""
        return await video.frames_at(linspace_times(crop.start, crop.end, crop.count), self.frame_size(video.info))

    def _carried_out(self, turn: Turn, before: tuple[Turn, ...]) -> tuple[ToolCall, ...]:
        """The calls of a turn, without those that are beyond the episode's last."""
        calls = turn.action.calls if isinstance(turn.action, Calls) else ()
        return calls[: max(0, self.max_calls - _asked(before))]

    async def after(self, trajectory: Trajectory, view: EpisodeView) -> Mapping[str, Any]:
        """Note the last crop that was carried out; one whose frames no longer fitted doesn't count."""
        last: CropRequest | None = None
        for number, turn in enumerate(trajectory.turns):
            run = trajectory.end is EndReason.TURN_LIMIT and number == len(trajectory.turns) - 1
            if not turn.legal_calls or not (turn.observation or run):
                continue
            for call in self._carried_out(turn, trajectory.turns[:number]):
                try:
                    last = self.crop(call, view.video)
                except ToolError:
                    continue
        return {} if last is None else {NOTE: list(last.interval)}

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        fits = len(trajectory.answer or "") < self.max_answer_chars
        acc = await self.grade(trajectory, qa, graders) if fits else 0.0
        fmt = float(fits and trajectory.answer is not None and format_ok([turn.text for turn in trajectory.turns]))
        return longvt_score(trajectory, acc, fmt, time_reward(trajectory, qa, self.time_reward), self.weights)

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        # An empty answer is wrong, and no judge is asked (released code).
        answer = trajectory.answer or None
        return await grade_answer(answer, qa, self.answer_match, graders.judge, "half")


def _asked(turns: tuple[Turn, ...]) -> int:
    """Calls of some turns, refused ones included."""
    return sum(len(turn.action.calls) for turn in turns if isinstance(turn.action, Calls))


def _schema(with_path: bool) -> dict[str, Any]:
    function = SCHEMA["function"]
    names = ARGUMENTS if with_path else ARGUMENTS[1:]
    properties = {name: function["parameters"]["properties"][name] for name in names}
    parameters = {**function["parameters"], "properties": properties, "required": list(names)}
    return {**SCHEMA, "function": {**function, "parameters": parameters}}


def _example(path: str) -> dict[str, Any]:
    times = {"start_time": 12.5, "end_time": 40}
    return {"video_path": path, **times} if path else times
