"""What an episode took, for the log."""

from agentic_video.rollout.tokens import ChatFormat
from agentic_video.types.trajectory import Aside, Trajectory
from agentic_video.video.source import CountingSource

COSTS = "costs"
"""In ``extra_fields``: what the episode took, by name (see :func:`episode_costs`)."""


def episode_costs(trajectory: Trajectory, chat_format: ChatFormat, source: CountingSource) -> dict[str, float]:
    """What an episode took, for the log.

    Returns:
        ``visual_tokens``: of all images and clips that were shown; ``frames_requested``, ``frames_decoded`` and
        ``decode_seconds``: of the frame store (earlier attempts of a validation included). Where the model was asked
        something beside the episode, also ``asides``, how often, and ``aside_tokens``, of prompts and replies.
    """
    asides = trajectory.all_asides
    beside = {"asides": float(len(asides)), "aside_tokens": float(sum(map(_tokens, asides)))} if asides else {}
    return {
        "visual_tokens": float(sum(chat_format.visual_tokens(ref) for ref in trajectory.visuals)),
        "frames_requested": float(source.requested),
        "frames_decoded": float(source.decoded),
        "decode_seconds": source.decode_seconds,
        **beside,
    }


def _tokens(aside: Aside) -> int:
    return aside.prompt_tokens + aside.num_tokens
