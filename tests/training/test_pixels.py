"""Pixels of micro-batches, made one ahead."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from agentic_video.training.engines import pixels
from agentic_video.training.engines.pixels import PixelsAhead, announced_micro_batches


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> PixelsAhead:
    made = PixelsAhead()
    monkeypatch.setattr(pixels, "shared_pixels", lambda: made)
    return made


def test_the_next_is_made_while_one_is_computed(ahead: PixelsAhead) -> None:
    begun: list[int] = []
    arrived = threading.Condition()

    def make(number: int) -> str:
        with arrived:
            begun.append(number)
            arrived.notify_all()
        return f"pixels of {number}"

    verl: Any = SimpleNamespace(prepare_micro_batches=lambda data: (data, None))
    announced_micro_batches(verl)
    with ahead.one_pass(make):
        assert verl.prepare_micro_batches([1, 2, 3]) == ([1, 2, 3], None)
        for number in (1, 2, 3):
            assert ahead.take(number, make) == f"pixels of {number}"
            with arrived:  # not asked for yet
                assert arrived.wait_for(lambda: begun == [1, 2, 3][: number + 1], timeout=60)  # noqa: B023
    assert begun == [1, 2, 3]


def test_without_a_pass_nothing_is_ahead(ahead: PixelsAhead) -> None:
    ahead.expect([1, 2])
    assert ahead.take(5, lambda number: 10 * number) == 50


def test_a_pass_that_fails_leaves_nothing(ahead: PixelsAhead) -> None:
    def make(number: int) -> int:
        if number == 2:
            raise ValueError("no such frame")
        return number

    with pytest.raises(ValueError, match="no such frame"), ahead.one_pass(make):
        ahead.expect([1, 2, 3])
        assert ahead.take(1, make) == 1
        ahead.take(2, make)
    assert ahead.take(7, make) == 7
