"""Reward workers that no longer answer."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from agentic_video.utils.time_limit import TimeLimitError

T = TypeVar("T")


async def while_answering(scoring: Coroutine[Any, Any, T], workers: Sequence[Any], seconds: float) -> T:
    """Await a coroutine that waits for reward workers, for as long as they answer at all.

    A reward has its own time limit, which a function can evade that never gives the interpreter away, such as a regular
    expression that backtracks: its worker's event loop stands still.

    Args:
        workers: Handles of Ray actors; others aren't asked.
        seconds: After so many the workers are asked for a sign of life, and have as many to give it; 0: never.

    Raises:
        TimeLimitError: One gave none.
    """
    task = asyncio.ensure_future(scoring)
    try:
        while not (await asyncio.wait({task}, timeout=seconds or None))[0]:
            signs = [worker.__ray_call__.remote(_alive) for worker in workers if hasattr(worker, "__ray_call__")]
            try:
                await asyncio.wait_for(asyncio.gather(*signs), seconds)
            except TimeoutError as error:
                if task.done():
                    break
                raise TimeLimitError(
                    f"a reward worker gave no sign of life for {seconds:g} s: a reward function keeps the "
                    "interpreter to itself (a regular expression?); agentic_video.reward.timeout can't end it"
                ) from error
        return task.result()
    finally:
        task.cancel()


def _alive(_worker: object) -> bool:
    return True
