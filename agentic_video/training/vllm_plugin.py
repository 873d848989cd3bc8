"""Loaded by vLLM in each of its processes (entry point group ``vllm.general_plugins``)."""

from functools import cache

from agentic_video.training.seams.hooks import register_seams
from agentic_video.training.seams.table import VLLM_SEAMS


@cache
def install() -> None:
    """Register the patches of vLLM; vLLM may call it several times."""
    register_seams(VLLM_SEAMS)
