"""The constants of the laptop profile, in one place: what the tiny model is trained for is what the recipe must set."""

from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.toyworld.model import FRAME_SIDE

PROMPT = "videozoomer_short"
"""A short form of VideoZoomer's prompt: on two cores the full one would cost more than the episode."""

LIMITS = TokenLimits(prompt=192, response=224, turn=40)


def laptop_system(overview_frames: int = 6) -> VideoZoomer:
    """VideoZoomer with one visual token a frame and few frames.

    Args:
        overview_frames: Must equal the world's.
    """
    return VideoZoomer(
        overview_max_frames=overview_frames,
        min_pixels=FRAME_SIDE**2,
        max_pixels=FRAME_SIDE**2,
        zoom_max_frames=8,
        max_turns=3,
        max_images=24,
        prompt=PROMPT,
    )
