"""Work beside a producer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentic_video.video.ahead import worked_beside


def test_results_come_in_order_and_few_items_are_under_way() -> None:
    produced: list[int] = []

    def items() -> Iterator[tuple[str, int]]:
        for number in range(20):
            produced.append(number)
            yield str(number), number

    with ThreadPoolExecutor(3) as executor:
        for place, (key, result) in enumerate(worked_beside(executor, items(), lambda number: number**2, 4)):
            assert (key, result) == (str(place), place**2)
            assert len(produced) <= place + 4


def test_what_was_produced_before_a_failure_comes_first() -> None:
    def items() -> Iterator[tuple[int, int]]:
        yield 1, 1
        yield 2, 2
        raise ValueError("no more")

    got: list[int] = []
    with ThreadPoolExecutor(1) as executor, pytest.raises(ValueError, match="no more"):
        for _, result in worked_beside(executor, items(), lambda number: number, 8):
            got.append(result)
    assert got == [1, 2]


def test_failing_work_is_raised() -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(ZeroDivisionError):
        list(worked_beside(executor, iter([(1, 0)]), lambda number: 1 // number, 2))


def test_without_a_free_processor_this_thread_does_the_work() -> None:
    room = iter([True, False, True, False])
    done_by: dict[int, str] = {}

    def work(number: int) -> int:
        done_by[number] = threading.current_thread().name
        return -number

    with ThreadPoolExecutor(1, "another") as executor:
        found = list(worked_beside(executor, ((n, n) for n in range(4)), work, 8, lambda: next(room)))
    assert found == [(0, 0), (1, -1), (2, -2), (3, -3)], "still in order"
    assert [done_by[n].startswith("another") for n in range(4)] == [True, False, True, False]
