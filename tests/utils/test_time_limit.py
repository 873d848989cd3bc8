import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from agentic_video.utils import time_limit
from agentic_video.utils.time_limit import TimeLimitError, call_limited, uncounted

SHORT = 0.2
LONG = 30.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What hanging functions wait for; it opens after the test."""
    opened = threading.Event()
    yield opened
    opened.set()
    while time_limit._stuck:
        time.sleep(0.01)


def run(function: Callable[..., object], *args: object, seconds: float = LONG) -> object:
    return asyncio.run(call_limited(function, *args, seconds=seconds, whose="f of row 7"))


def test_what_a_function_returns_or_raises_is_its_callers() -> None:
    async def later(number: int) -> int:
        await asyncio.sleep(0)
        return number

    assert run(abs, -3) == run(later, 3) == run(lambda: later(3)) == 3
    assert run(abs, -3, seconds=0.0) == 3
    for error in (ValueError, TimeoutError, KeyboardInterrupt):

        def fail(error: type[BaseException] = error) -> None:
            raise error("mine")

        with pytest.raises(error, match="mine"):
            run(fail)
    with pytest.raises(RuntimeError):
        run(lambda: next(iter(())))

    async def late() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        run(late)


def test_a_plain_function_that_hangs_ends_by_name_and_holds_nothing_up(gate: threading.Event) -> None:
    async def play() -> int:
        beats = 0
        hanging = asyncio.ensure_future(call_limited(gate.wait, seconds=SHORT, whose="f of row 7"))
        while not hanging.done():
            beats += 1
            await asyncio.sleep(SHORT / 20)
        with pytest.raises(TimeLimitError, match="f of row 7"):
            await hanging
        assert await call_limited(abs, -1, seconds=LONG, whose="g") == 1
        return beats

    assert asyncio.run(play()) >= 3


def test_a_coroutine_that_hangs_is_cancelled() -> None:
    cancelled = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(TimeLimitError, match="f of row 7"):
        run(hang, seconds=SHORT)
    assert cancelled == [True]


def test_what_a_plain_function_returns_has_what_is_left_of_its_time() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeLimitError):
        run(lambda: hang(), seconds=SHORT)


def test_too_many_calls_that_never_came_back_end_all_others_by_name(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "MAX_STUCK", 2)
    called = []
    for _ in range(2):
        with pytest.raises(TimeLimitError, match="took more"):
            run(gate.wait, seconds=SHORT)
    with pytest.raises(TimeLimitError, match="2 calls never came back, the last one f of row 7"):
        run(called.append, 1)
    assert not called
    gate.set()
    while time_limit._stuck:  # they come back
        time.sleep(0.01)
    run(called.append, 1)
    assert called == [1]


def test_who_stops_waiting_leaves_a_call_that_counts_until_it_comes_back(gate: threading.Event) -> None:
    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call_limited(gate.wait, seconds=LONG, whose="f"), SHORT)

    asyncio.run(give_up())
    assert list(time_limit._stuck.values()) == ["f"]


def test_waiting_for_a_turn_costs_no_time(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "MAX_RUNNING", 1)

    async def play() -> list[object]:
        calls = (call_limited(time.sleep, SHORT / 2, seconds=SHORT * 0.9, whose="f") for _ in range(4))
        return list(await asyncio.gather(*calls))

    assert asyncio.run(play()) == [None] * 4


def test_what_has_a_limit_of_its_own_does_not_count() -> None:
    async def asks() -> str:
        async def judge() -> None:
            with uncounted():
                await asyncio.sleep(2 * SHORT)

        await asyncio.gather(judge(), judge())
        await judge()
        return "graded"

    assert run(asks, seconds=SHORT) == "graded"

    async def asks_and_hangs() -> None:
        with uncounted():
            await asyncio.sleep(SHORT)
        await asyncio.Event().wait()

    with pytest.raises(TimeLimitError):
        run(asks_and_hangs, seconds=SHORT)


def test_nothing_is_uncounted_outside_of_a_limited_call() -> None:
    with uncounted():
        pass
