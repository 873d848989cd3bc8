"""Costs of an episode, for the log."""

from agentic_video.rollout.tokens import ChatFormat
from agentic_video.types.trajectory import Trajectory
from agentic_video.video.source import CountingSource

COSTS = "costs"
"""Key of :func:`episode_costs` in ``extra_fields``."""


def episode_costs(trajectory: Trajectory, chat_format: ChatFormat, source: CountingSource) -> dict[str, float]:
    """Visual tokens shown, frames requested and decoded, seconds of decoding; and side queries, if there are any."""
    asides = trajectory.all_asides
    costs = {
        "visual_tokens": float(sum(chat_format.visual_tokens(ref) for ref in trajectory.visuals)),
        "frames_requested": float(source.requested),
        "frames_decoded": float(source.decoded),
        "decode_seconds": source.decode_seconds,
    }
    if asides:
        costs["asides"] = float(len(asides))
        costs["aside_tokens"] = float(sum(aside.prompt_tokens + aside.num_tokens for aside in asides))
    return costs
