"""A custom tool and a custom system, outside the package.

VideoZoomer shows evenly spaced frames of the requested stretch and misses flashes between them. Here the same call
returns the frames at which the brightness changes most. The grammar stays VideoZoomer's, so that a model trained on it,
such as the laptop profile's tiny model, can use the tool at once.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from agentic_video.graders.base import Graders
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.prompts import fill
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.tools.base import Video
from agentic_video.tools.video_zoom import ZoomRequest
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory, recorded_frames
from agentic_video.video.sampling import linspace_times

THUMBNAIL = (32, 32)
"""Width and height in pixels at which frames are compared: small ones are cheap to keep in the frame store."""

INSTRUCTIONS = """You answer a question about a video of {duration:.2f} seconds. First you see a few frames from all \
over it, each with its number and its time in front. Think inside <think> and </think>, then do one of two things.

Look for changes: <video_zoom>{"segment": [start_sec, end_sec], "fps": n}</video_zoom> compares the frames of that \
stretch and shows those right after its strongest changes, in order of time: n frames for each second of the stretch, \
{max_frames} at most. You may look {max_calls} times.

Answer: write the letter of the right option, or a short answer, inside <answer> and </answer>.

The frames:
"""


async def find_changes(
    video: Video, start: float, end: float, count: int, size: tuple[int, int], candidates: int = 64
) -> list[Frame]:
    """The tool: frames right after the strongest changes of brightness in a stretch of the video.

    At least one and at most ``count`` frames of ``size`` (width, height in pixels), in order of time; of equally strong
    changes the earliest. A stretch of more than ``candidates`` frames is thinned evenly.
    """
    available = round((end - start) * video.info.fps) + 1
    looks = await video.frames_at(linspace_times(start, end, min(candidates, available)), THUMBNAIL)
    looks = [look for number, look in enumerate(looks) if number == 0 or look.index != looks[number - 1].index]
    changes = [
        float(np.abs(after.image.astype(np.int16) - before.image.astype(np.int16)).mean())
        for before, after in pairwise(looks)
    ]
    strongest = sorted(range(len(changes)), key=lambda number: -changes[number])[:count]
    indices = [looks[number + 1].index for number in sorted(strongest)] or [looks[0].index]
    return await video.frames(indices, size)


@dataclass(frozen=True)
class SharpZoomer(VideoZoomer):
    """VideoZoomer whose zoom shows changes, and costs something.

    Attributes:
        candidates: Most frames that one zoom compares.
        lead: Seconds before the requested stretch that are compared, too: its first event may have begun there.
        frame_price: Taken off the reward for each frame that a zoom has shown.
        own_words: Use :data:`INSTRUCTIONS` instead of VideoZoomer's prompt. Off by default, as the laptop profile's
            tiny model knows only the words that it was trained on.
    """

    name: str = "sharpzoomer"
    candidates: int = 64
    lead: float = 1.0
    frame_price: float = 0.01
    own_words: bool = False

    def __post_init__(self) -> None:
        if self.frames_as == "video":
            raise ValueError("frames_as=video: a clip's frames are evenly spaced, and changes lie anywhere; use images")

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        # with prompt_role=system the instructions are a message of their own
        first, *others = await super().opening(view)
        if not self.own_words:
            return (first, *others)
        words = fill(
            INSTRUCTIONS,
            duration=view.video.info.duration,
            max_frames=self.zoom_max_frames,
            max_calls=self.max_turns - 1,
        )
        if first.role == "system":
            words = words.strip()
        return (replace(first, parts=(words, *first.parts[1:])), *others)

    async def look(self, request: ZoomRequest, video: Video) -> list[Frame]:
        size = self.frame_size(video.info)
        start = max(0.0, request.start - self.lead)
        return await find_changes(video, start, request.end, request.count, size, self.candidates)

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        score = await super().score(trajectory, qa, graders)
        shown = sum(len(recorded_frames(turn.observation)) for turn in trajectory.turns)
        price = self.frame_price * shown
        return replace(score, reward=score.reward - price, terms={**score.terms, "frame_price": -price})
