"""ParaVT: several stretches of the video at once, each seen by a sub-agent that tells the agent what it shows.

Yang et al., "ParaVT: Taming the Tool Prior Paradox for Parallel Tool Use in Agentic Video Reinforcement Learning". The
constants are those of the released training code; its evaluation shows the frames of a crop to the agent itself
(``config/profile/published_evaluation.yaml`` of the recipe). docs/fidelity.md lists each with its source.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from agentic_video.graders.base import Graders
from agentic_video.graders.judge import grade_answer
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.needs import Grader, judge_needs
from agentic_video.systems.overview import Count, PixelBoundedSystem, Rate
from agentic_video.systems.paravt.grammar import CUT_MARK, LABELS, begins_call, harmless, labelled, parse_turn, reply
from agentic_video.systems.paravt.reward import ParaVTWeights, paravt_score, same_words, word_f1
from agentic_video.systems.prompts import fill, load_prompt
from agentic_video.tools.base import ToolError
from agentic_video.tools.crop_video import SCHEMA, CropLimits, CropRequest, check_crop
from agentic_video.types.action import REFUSED, Action, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation, Part
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory, recorded_frames
from agentic_video.utils.units import clock
from agentic_video.video.index import VideoInfo
from agentic_video.video.sampling import linspace_times

CropsAs = Literal["summary", "frames"]
"""Reply to a crop: a sub-agent's summary (released training), or its frames (released evaluation)."""
OpenMatch = Literal["f1", "exact", "judge"]
"""Grade of an open answer: by its words (their F1), as the same words, or by the judge (1, 0.5 or 0)."""
REPLIES = {
    "summary": "A helper looks at the stretch, {max_frames} frames at most, and tells you in words what it shows; you "
    "don't see these frames yourself, so ask for stretches that are short enough.",
    "frames": "You are then shown the stretch, in {max_frames} frames at most, so ask for short ones.",
}
"""The instructions' sentence about a crop's reply."""


@dataclass(frozen=True)
class ParaVT(PixelBoundedSystem):
    """The constants of ParaVT; each is a config key under ``agentic_video.system``.

    Attributes:
        overview: How the overview's frames are chosen: ``uniform``, ``rate`` (their number is then the rate's, whatever
            the next two say, but for the most), ``keyframes``, ``listed``, ``retrieval`` or ``none``.
        overview_least: Fewest frames of the overview. Their number is drawn for each video, the same for all its
            rollouts, from this one, twice, four times ... as many, up to ``overview_frames``.
        overview_frames: Most frames of the overview; with as many as the fewest nothing is drawn.
        frame_labels: Whether frames that the agent is shown come after their times.
        crops_as: Reply to a crop: ``summary`` (a sub-agent, the same model, sees its frames and describes them) or
            ``frames`` (the agent sees them itself).
        crop_fps: Frames a second of a crop.
        crop_max_frames: Most frames of a crop.
        summary_tokens: Most tokens of a sub-agent's summary.
        subagent_prompt: Template of a sub-agent's task, or a file.
        max_asides: Most sub-agents of an episode; calls beyond them are refused.
        train_asides: Whether sub-agents' replies are trained on, with the episode's advantage.
        max_calls: Most calls of one turn; those beyond it are refused.
        max_turns: Most generations.
        run_last_call: Whether calls of the last turn are carried out, and counted, before the episode ends.
        forced_answer: In validation and evaluation: asked for an answer with this text where the turns are used up;
            empty asks for none.
        reply_prefix: What each of the agent's replies begins with; it is given, not sampled.
        max_images: Most images of an episode; those that sub-agents see don't count.
        open_match: How an open answer is graded: ``f1`` (of its words), ``exact`` (the same words) or ``judge``.
        answer_fallback: Whether a turn with neither a call nor an answer in tags answers with its text.
    """

    name: str = "paravt"
    overview_least: int = 4
    overview_frames: int = 64
    overview_fps: Rate = 1.0
    frame_labels: bool = True
    size_factor: Count = 32
    crops_as: CropsAs = "summary"
    crop_fps: Rate = 1.0
    crop_max_frames: int = 16
    summary_tokens: Count = 512
    subagent_prompt: str = "paravt_subagent"
    max_asides: int = 20
    train_asides: bool = False
    max_calls: Count = 5
    max_turns: int = 4
    run_last_call: bool = True
    forced_answer: str = ""
    reply_prefix: str = "<think>\n"
    max_images: int = 304
    prompt: str = "paravt"
    open_match: OpenMatch = "f1"
    answer_fallback: bool = True
    weights: ParaVTWeights = field(default_factory=ParaVTWeights)
    # A turn may hold several calls, so no text ends it.
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.overview_least <= self.overview_frames:
            raise ValueError(
                f"overview_least must be from 1 to overview_frames, got {self.overview_least} and "
                f"{self.overview_frames}"
            )
        self.crop_limits()

    def with_frames(self, count: int) -> System:
        """Every video gets so many."""
        if self.overview == "none":
            raise ValueError(f"{self.name} has no such number of frames")
        more = max(0, count - self.overview_frames)
        return replace(self, overview_frames=count, overview_least=count, max_images=self.max_images + more)

    def first_view_counts(self) -> tuple[int, ...]:
        """Numbers of overview frames that videos draw from."""
        if self.overview == "uniform":
            return tuple(self._overview_counts())
        return (self.overview_frames,) if self.overview == "rate" else ()

    def crop_limits(self) -> CropLimits:
        """Limits of one crop; an end behind the video's is moved to it (released code)."""
        return CropLimits(fps=self.crop_fps, max_frames=self.crop_max_frames, past_end="clamped")

    def overview_count(self, video: str) -> int:
        """Number of overview frames, drawn by the name of the video's file: the same for all rollouts of its questions.

        Unlike Python's ``hash`` of the path (released code), it is the same in every process and folder.
        """
        counts = self._overview_counts()
        drawn = hashlib.blake2b(Path(video).name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return counts[int.from_bytes(drawn, "big") % len(counts)]

    def _overview_counts(self) -> list[int]:
        """The numbers that :meth:`overview_count` draws from, each twice the one before."""
        counts = [self.overview_least]
        while 2 * counts[-1] <= self.overview_frames:
            counts.append(2 * counts[-1])
        return counts

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        count = self.overview_frames if self.overview == "rate" else self.overview_count(view.qa.video)
        frames = await self.first_frames(view, count, self.frame_size(view.video.info))
        instructions = self.instructions(
            frames=len(frames),
            labels=LABELS[self.overview_as] if self.frame_labels else "",
            tool=json.dumps(dict(SCHEMA)),
            video=Path(view.qa.video).name,
            max_turns=self.max_turns,
            max_calls=self.max_calls,
            replies=fill(REPLIES[self.crops_as], max_frames=self.crop_max_frames),
        )
        shown = labelled(frames, self.overview_as, self.frame_labels)
        question = "\n" + self.question(view.qa)
        return (Message("system", (instructions.strip(),)), Message("user", (*shown, question)))

    def parse(self, text: str) -> Action:
        return parse_turn(text, self.max_calls, self.answer_fallback)

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        if isinstance(action, Illegal):
            if not begins_call(view.turns[-1].text):
                return None
            return Observation((reply(f"Error: {action.reason}."),), illegal_calls=1)
        left = self.max_asides - sum(len(turn.asides) for turn in view.turns)
        requests: list[CropRequest | str] = []
        legal: list[CropRequest] = []
        for call in action.calls:
            try:
                if self.crops_as == "summary" and len(legal) >= left:
                    raise ToolError("no helper is left: answer")
                legal.append(self._request(call, view.video.info))
                requests.append(legal[-1])
            except ToolError as error:
                requests.append(str(error))
        if self.crops_as == "frames":
            asked = sum(request.count for request in legal)
            before = sum(len(recorded_frames(turn.observation)) for turn in view.turns)
            if before + asked > self.max_images:
                return Observation((), len(legal), len(requests) - len(legal), unread_images=asked)
        shown = await asyncio.gather(*(self._frames(request, view) for request in legal))
        if self.crops_as == "summary":
            # Asked in the order of the calls, which a replay relies on, and answered at the same time.
            summaries = (self._summary(*pair, view) for pair in zip(legal, shown, strict=True))
            made = await asyncio.gather(*summaries)
        else:
            made = [self._shown(request, frames) for request, frames in zip(legal, shown, strict=True)]
        replies = dict(zip(map(id, legal), made, strict=True))
        parts: list[Part] = []
        for number, request in enumerate(requests):
            told = (reply(f"Error: {request}."),) if isinstance(request, str) else replies[id(request)]
            parts += [*(("\n",) if number else ()), *told]
        return Observation(tuple(parts), legal_calls=len(legal), illegal_calls=len(requests) - len(legal))

    def _request(self, call: ToolCall, info: VideoInfo) -> CropRequest:
        if call.name == REFUSED:
            raise ToolError(str(call.arguments["reason"]))
        return check_crop(call.arguments, info.duration, self.crop_limits())

    async def _frames(self, request: CropRequest, view: EpisodeView) -> list[Frame]:
        times = linspace_times(request.start, request.end, request.count)
        return await view.video.frames_at(times, self.frame_size(view.video.info))

    def _shown(self, request: CropRequest, frames: list[Frame]) -> tuple[Part, ...]:
        told = f"{len(frames)} frames from {request.start:.1f} to {request.end:.1f} seconds."
        return (*labelled(frames, self.frames_as, self.frame_labels), "\n" + reply(told))

    async def _summary(self, request: CropRequest, frames: list[Frame], view: EpisodeView) -> tuple[Part, ...]:
        """The reply with the summary of a sub-agent, which sees a crop's frames and nothing else."""
        asked = fill(
            load_prompt(self.subagent_prompt),
            count=len(frames),
            start=clock(request.start),
            end=clock(request.end),
            seconds=request.end - request.start,
            question=view.qa.question,
        )
        aside = await view.ask((Message("user", (*frames, "\n" + asked.strip())),), max_tokens=self.summary_tokens)
        return (reply(harmless(aside.text) + ("" if aside.finished else CUT_MARK)),)

    def needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        return judge_needs(qa) if self.open_match == "judge" else {}

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        if qa.answer_type == "open_ended" and self.open_match != "judge":
            compare = word_f1 if self.open_match == "f1" else same_words
            return 0.0 if trajectory.answer is None else compare(trajectory.answer, qa.answer)
        return await grade_answer(trajectory.answer, qa, self.answer_match, graders.judge, "half")

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        acc = await self.grade(trajectory, qa, graders)
        return paravt_score(trajectory, acc, self.weights)
