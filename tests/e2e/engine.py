"""Checks of a checkpoint on one real vLLM engine: ``python -m tests.e2e.engine CHECKPOINT [CHECK ...]``.

A process of its own, which ends by force: after an engine in its own process Python doesn't end by itself.
"""

import asyncio
import os
import sys
import traceback
from pathlib import Path

from agentic_video.families.registry import family_in, rules_in
from tests.e2e import asides, clips, vision
from tests.e2e.vllm_engine import vllm_engine

CHECKS = {"asides": asides.compare, "clips": clips.compare, "vision": vision.compare}
"""In this order: the last changes the engine's weights."""


async def check(checkpoint: Path, names: list[str]) -> int:
    """Run checks; how many failed."""
    family, takes_clips = family_in(checkpoint), rules_in(checkpoint).takes_clips
    assert family is not None
    family.prepare_vllm()
    failed = 0
    async with vllm_engine(checkpoint, clips=8 if takes_clips else 0) as engine:
        for name in names or CHECKS:
            if name == "clips" and not takes_clips:
                continue
            await engine.reset_mm_cache()
            try:
                await CHECKS[name](engine, checkpoint)
            except Exception:
                traceback.print_exc()
                print("failed:", name, file=sys.stderr)
                failed += 1
    return failed


if __name__ == "__main__":
    status = 1
    try:
        status = asyncio.run(check(Path(sys.argv[1]), sys.argv[2:]))
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)
