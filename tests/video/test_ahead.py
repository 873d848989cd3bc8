"""Work beside a producer."""

from __future__ import annotations

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
