"""How the time of a function grows with its input, on machines of any speed."""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LEAST_S = 1e-3
"""Shorter calls are measured many at a time, until they take so many seconds together."""

SLACK = 3.0
"""A linear function's time may grow by so many times more than its input, or by the root of the growth: caches,
allocations, a busy machine."""

REPEATS = 5
"""How often an input is measured. The least time counts, as other programs only ever make a call slower."""

ATTEMPTS = 3
"""A machine that is shared may be quick for the small input and slow for the large one; a quadratic function fails each
time."""


def cpu_s(function: Callable[[T], object], argument: T) -> float:
    """The processor time of one call, measured once.

    Args:
        function: What is measured. What it does in other threads or processes isn't counted.
        argument: Its argument, the same at each call.

    Returns:
        Seconds of this thread's processor time.
    """
    calls = 1
    gc_was_on = gc.isenabled()
    gc.disable()  # a walk over all other objects of the process is no cost of the function
    try:
        while True:
            started = time.thread_time()
            for _ in range(calls):
                function(argument)
            spent = time.thread_time() - started
            if spent >= LEAST_S:
                return spent / calls
            calls *= 4
    finally:
        if gc_was_on:
            gc.enable()


def assert_linear(function: Callable[[T], object], small: T, large: T, growth: float | None = None) -> None:
    """Assert that the time of a function grows with its input, not faster (up to ``SLACK``).

    A quadratic function fails where the large input is at least four times the small one, and the small one is long
    enough for fixed costs not to count: thousands of characters for a function of a text, more for an episode.

    Args:
        function: What is measured; it is called several times with each input.
        small: The smaller input.
        large: The larger input.
        growth: How many times larger that is; by default the ratio of their lengths.

    Raises:
        AssertionError: The time grew more than ``SLACK * growth`` times, or the two inputs are too much alike.
    """
    times = len(large) / len(small) if growth is None else growth  # type: ignore[arg-type]
    assert times > SLACK, f"inputs whose sizes are as 1 to {times:.1f} don't tell quadratic from linear"
    for _ in range(ATTEMPTS):
        before = min(cpu_s(function, small) for _ in range(REPEATS))
        after = float("inf")
        for _ in range(REPEATS):
            after = min(after, cpu_s(function, large))
            if after <= max(SLACK, times**0.5) * times * before:
                return
    raise AssertionError(
        f"an input {times:.1f} times as large took {after / before:.1f} times as long: {before:.2g} s, {after:.2g} s"
    )
