"""TimeSearch-R: searches the video for frames by text and time, and is paid for having found enough to answer from.

Pan et al., "TimeSearch-R: Adaptive Temporal Search for Long-Form Video Understanding via Self-Verification
Reinforcement Learning". The constants are the released script's where it gives them, the paper's elsewhere;
docs/fidelity.md lists each with its source.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from agentic_video.graders.answer import MatchRule
from agentic_video.graders.base import Graders
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.needs import Grader, judge_needs
from agentic_video.systems.overview import Count, Rate, VideoSystem, ViewBudget
from agentic_video.systems.prompts import fill, load_prompt
from agentic_video.systems.shown import FramesAs, OverviewKind
from agentic_video.systems.timesearch.grammar import (
    ANSWER_CLOSE,
    CALL_CLOSE,
    first_block,
    labelled,
    parse_turn,
    times_text,
)
from agentic_video.systems.timesearch.reward import (
    SEQUENCE,
    TimeSearchWeights,
    accuracy,
    mixes,
    timesearch_score,
    verified_answer,
)
from agentic_video.tools import seek_video_frames
from agentic_video.tools.base import ToolError, Video
from agentic_video.tools.seek_video_frames import SeekRequest, check_seek, pool_indices, within
from agentic_video.types.action import Action, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation, ObservationRole, Part
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import FrameRef, Trajectory, recorded_frames, runs_of_size
from agentic_video.video.index import VideoInfo
from agentic_video.video.retrieval.dpp import greedy_map, relative_relevance
from agentic_video.video.retrieval.retriever import MAX_COMPARED
from agentic_video.video.sampling import uniform_indices
from agentic_video.video.sizes import PixelBudget, fit_size

VERIFIED = "csv"
"""Note of a trajectory: the self-verification's reply."""


@dataclass(frozen=True)
class TimeSearch(VideoSystem):
    """The constants of TimeSearch-R; each is a config key under ``agentic_video.system``.

    Attributes:
        overview_tokens: Visual tokens of the preview: what they leave a frame bounds its size.
        min_frame_tokens: Least visual tokens of a preview's frame (or of two that are one in a clip).
        max_frame_tokens: And the most.
        frames_as: How the preview is shown: ``video`` (one clip: half the tokens) or ``images`` (each frame by itself,
            after its time).
        pool_fps: Frames a second that are searched.
        pool_max_frames: Most frames that are searched; in a longer video they lie further apart.
        seek_frames: Most frames that a search shows, and how many it shows where the call doesn't say.
        seek_min_tokens: Least visual tokens of a frame that a search shows.
        seek_max_tokens: And the most.
        max_query_chars: A search for a longer text is refused.
        prompt: Name of the template of what follows the preview, or a file.
        tools_prompt: The same of the system message, which describes the tool; empty for none.
        reply: Follows the frames of a search; ``{times}`` is filled in.
        hint: Follows the reason why a call couldn't be carried out.
        response_tags: Whether a reply stands between ``<tool_response>`` and ``</tool_response>``, for models whose
            chat template doesn't write these around a tool's message, and for replies that are a user's.
        max_answer_chars: An open-ended answer of so many characters is wrong.
        csv: Whether the policy is asked again, after an answered episode, with the searched frames alone.
        csv_prompt: Name of the template of that question's system message, or a file; empty for none.
        csv_tokens: Most tokens of its reply.
    """

    first_view_fields: ClassVar[tuple[str, ...]] = ("overview_max_frames",)
    name: str = "timesearch"
    overview: OverviewKind = "rate"
    overview_fps: Rate = 2.0
    overview_max_frames: int = 768
    overview_tokens: Count = 10_240
    min_frame_tokens: int = 12
    max_frame_tokens: int = 256
    frames_as: FramesAs = "video"
    size_factor: Count = 28
    pool_fps: Rate = 2.0
    pool_max_frames: Annotated[int, Field(ge=1, le=MAX_COMPARED)] = 2_048
    seek_frames: Count = 8
    seek_min_tokens: int = 32
    seek_max_tokens: int = 256
    max_query_chars: int = 500
    max_turns: int = 8
    max_images: int = 824
    prompt: str = "timesearch"
    tools_prompt: str = "timesearch_tools"
    reply: str = "\nThese frames are at {times}. Answer if they are enough, else search with other arguments."
    hint: str = (
        "\nWrite one call as a JSON object inside <tool_call> and </tool_call>, or the answer inside <answer> and \
</answer>."
    )
    observation_role: ObservationRole = "tool"
    response_tags: bool = False
    answer_match: MatchRule = "leading_letter"
    max_answer_chars: int = 100
    csv: bool = True
    csv_prompt: str = "timesearch_csv"
    csv_tokens: Count = 256
    weights: TimeSearchWeights = field(default_factory=TimeSearchWeights)
    stop: tuple[str, ...] = (CALL_CLOSE, ANSWER_CLOSE)

    def __post_init__(self) -> None:
        self._budget(self.min_frame_tokens, self.max_frame_tokens)
        self._budget(self.seek_min_tokens, self.seek_max_tokens)

    def _budget(self, least: int, most: int) -> PixelBudget:
        return PixelBudget(least * self.size_factor**2, most * self.size_factor**2, self.size_factor)

    def direct(self) -> System:
        """The user's message alone."""
        overview: OverviewKind = "uniform" if self.overview == "none" else self.overview
        return replace(self, max_turns=1, prompt="direct", overview=overview, tools_prompt="")

    @property
    def view_budget(self) -> ViewBudget:
        """The preview's bounds, for a baseline."""
        bounds = self._budget(self.min_frame_tokens, self.max_frame_tokens)
        return ViewBudget(bounds.min_pixels, bounds.max_pixels, self.overview_tokens)

    def overview_size(self, info: VideoInfo) -> tuple[int, int]:
        """(width, height) of the preview's frames: each one's (or two's of a clip) share of ``overview_tokens`` within
        the limits of a frame; never less than a little above the lower one (released code)."""
        count = min(self.overview_max_frames, info.num_frames)
        if self.overview == "rate":
            count = min(count, math.ceil(info.duration * self.overview_fps))
        together = 2 if self.overview_as == "video" else 1
        cell = self.size_factor**2
        share = min(self.max_frame_tokens * cell, self.overview_tokens * cell * together / max(count, 1))
        least = self.min_frame_tokens * cell
        most = max(int(share), min(int(1.05 * least), self.max_frame_tokens * cell))
        return fit_size(info.width, info.height, PixelBudget(least, most, self.size_factor))

    def seek_size(self, info: VideoInfo) -> tuple[int, int]:
        """(width, height) of the frames that a search shows."""
        return fit_size(info.width, info.height, self._budget(self.seek_min_tokens, self.seek_max_tokens))

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        info = view.video.info
        frames = await self.first_frames(view, self.overview_max_frames, self.overview_size(info))
        words = {"duration": info.duration, "max_turns": self.max_turns, "seek_frames": self.seek_frames}
        shown = labelled(frames, self.overview_as)
        asked = self.instructions(**words) + self.question(view.qa)
        opening = (Message("user", (*shown, "\n" + asked)),)
        if not self.tools_prompt:
            return opening
        return (Message("system", (fill(load_prompt(self.tools_prompt), **words).strip(),)), *opening)

    def parse(self, text: str) -> Action:
        return parse_turn(text)

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        if isinstance(action, Illegal):
            # A turn without a call leaves nothing to give a hint about.
            return None if first_block(view.turns[-1].text) is None else self._refusal(action.reason)
        try:
            frames = await self.look(action.calls[0], view.video)
        except ToolError as error:
            return self._refusal(str(error))
        told = fill(self.reply, times=times_text(frames))
        return Observation(self._reply(labelled(frames), told), legal_calls=1)

    def _refusal(self, reason: str) -> Observation:
        return Observation(self._reply((), f"Error: {reason}.{self.hint}"), illegal_calls=1)

    def _reply(self, shown: Sequence[Part], told: str) -> tuple[Part, ...]:
        first, last = ("<tool_response>\n", "\n</tool_response>") if self.response_tags else ("", "")
        parts = (first, *shown, told + last) if shown else (first + told + last,)
        return tuple(part for part in parts if part != "")

    async def look(self, call: ToolCall, video: Video) -> list[Frame]:
        """The frames that a call asks for, in order of time."""
        if call.name != seek_video_frames.NAME:
            raise ToolError(f"there is no such tool, only {seek_video_frames.NAME}")
        info = video.info
        request = check_seek(call.arguments, info.duration, self.seek_frames, self.max_query_chars)
        return await video.frames(await self.select(request, video), self.seek_size(info))

    async def select(self, request: SeekRequest, video: Video) -> list[int]:
        """Select the frames of a legal search."""
        info = video.info
        pool = pool_indices(info.num_frames, info.shown_seconds, self.pool_fps, self.pool_max_frames)
        start, end = await video.frame_positions((request.start, request.end), self.seek_size(info))
        candidates = within(pool, start, end)
        if len(candidates) <= request.count:
            return candidates
        if not request.query:
            return [candidates[place] for place in uniform_indices(len(candidates), request.count)]
        if not video.can_search:
            raise ToolError("a query can't be searched for here: there is no retrieval model")
        scores, alike = await video.similarities(request.query, candidates)
        return [candidates[place] for place in greedy_map(relative_relevance(scores), alike, request.count)]

    async def after(self, trajectory: Trajectory, view: EpisodeView) -> Mapping[str, Any]:
        """Completeness self-verification (paper): the same policy answers from the searched frames alone, without
        preview and tools. Not asked where there is no answer or no frame, for which nothing is paid."""
        refs = searched(trajectory)
        if not self.csv or trajectory.answer is None or not refs:
            return {}
        frames: list[Frame] = []
        for size, indices in runs_of_size(refs):
            frames += await view.video.frames(indices, size)
        question = f"\nQuestion: {self.question(view.qa)}"
        asked = [Message("user", (*labelled(frames), question))]
        if self.csv_prompt:
            asked.insert(0, Message("system", (load_prompt(self.csv_prompt).strip(),)))
        aside = await view.ask(asked, max_tokens=self.csv_tokens)
        return {VERIFIED: aside.text}

    async def demonstration_score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        """Only training has a policy that is asked again."""
        weights = replace(self.weights, completeness=0.0)
        return await replace(self, weights=weights).score(trajectory, qa, graders)

    async def grade(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        return await self._accuracy(trajectory.answer, qa, graders)

    async def _accuracy(self, answer: str | None, qa: VideoQA, graders: Graders) -> float:
        return await accuracy(answer, qa, self.answer_match, self.max_answer_chars, graders.judge)

    def needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        return {} if qa.extra.get("type") == SEQUENCE else judge_needs(qa)

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        acc = 0.0 if mixes(trajectory) else await self.grade(trajectory, qa, graders)
        said = trajectory.notes.get(VERIFIED)
        verified = 0.0
        # A wrong answer earns no completeness: what the verification said needs no grade.
        if acc > 0.5 and isinstance(said, str):
            verified = await self._accuracy(verified_answer(said), qa, graders)
        return timesearch_score(trajectory, acc, verified, self.weights)


def searched(trajectory: Trajectory) -> Sequence[FrameRef]:
    """The frames that searches have shown, in order."""
    return recorded_frames([part for turn in trajectory.turns for part in turn.observation])
