"""One coroutine at a time, and whoever waits elsewhere in between."""

import asyncio
from itertools import pairwise

from agentic_video.training.loop.turnstile import yield_fairly


def test_ready_coroutines_continue_one_per_round() -> None:
    passed: list[int] = []
    seen: list[int] = []

    async def episode(number: int, ready: asyncio.Event) -> None:
        await ready.wait()
        await yield_fairly()
        passed.append(number)

    async def watch() -> None:
        while len(passed) < 20:
            await asyncio.sleep(0)
            seen.append(len(passed))

    async def main() -> None:
        ready = asyncio.Event()
        episodes = [asyncio.create_task(episode(number, ready)) for number in range(20)]
        await asyncio.sleep(0)
        ready.set()
        await asyncio.gather(watch(), *episodes)

    asyncio.run(main())
    assert passed == list(range(20))
    assert all(later - before <= 1 for before, later in pairwise(seen))


def test_a_cancelled_coroutine_blocks_no_other() -> None:
    async def main() -> list[str]:
        done: list[str] = []

        async def pass_through(name: str) -> None:
            await yield_fairly()
            done.append(name)

        tasks = [asyncio.create_task(pass_through(name)) for name in "abc"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return done

    assert asyncio.run(main()) == ["a", "c"]
    assert asyncio.run(main()) == ["a", "c"]  # another loop
