"""Requests for embeddings are gathered into batches."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

from agentic_video.video.retrieval.batcher import Batcher


class Squares:
    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.fail = False

    def __call__(self, items: Sequence[int]) -> npt.NDArray[np.float32]:
        self.batches.append(list(items))
        if self.fail:
            raise RuntimeError("out of memory")
        return np.array([[item**2] for item in items], np.float32)


@pytest.fixture
def squares() -> Squares:
    return Squares()


@pytest.fixture
def executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


def test_each_request_gets_its_own_rows(squares: Squares, executor: ThreadPoolExecutor) -> None:
    async def use() -> list[list[float]]:
        batcher = Batcher(squares, 4, 0.001, executor)
        answers = await asyncio.gather(*(batcher([n, n + 10]) for n in range(5)))
        assert (batcher.items, batcher.batches) == (10, len(squares.batches)) and batcher.seconds > 0
        return [[float(row[0]) for row in rows] for rows in answers]

    assert asyncio.run(use()) == [[n**2, (n + 10) ** 2] for n in range(5)]
    # first come first served, in batches as full as they can be
    assert [item for batch in squares.batches for item in batch] == [n + m for n in range(5) for m in (0, 10)]
    assert [len(batch) for batch in squares.batches] == [4, 4, 2]


def test_a_full_batch_does_not_wait(squares: Squares, executor: ThreadPoolExecutor) -> None:
    async def use() -> None:
        full, other = Batcher(squares, 2, 600.0, executor), Batcher(squares, 2, 600.0, executor)
        waiting = asyncio.create_task(other([5]))
        filling = [asyncio.create_task(full([item])) for item in (1, 2)]
        await asyncio.gather(*filling)
        assert not waiting.done() and squares.batches == [[1, 2]]
        # a request that fills it ends its wait
        await asyncio.gather(waiting, other([6]))
        assert squares.batches == [[1, 2], [5, 6]]

    asyncio.run(asyncio.wait_for(use(), 60))


def test_a_request_that_gave_up_is_left_out(squares: Squares, executor: ThreadPoolExecutor) -> None:
    async def use() -> None:
        batcher = Batcher(squares, 3, 600.0, executor)
        gone = asyncio.create_task(batcher([1]))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await batcher([2, 3])

    asyncio.run(asyncio.wait_for(use(), 60))
    assert squares.batches == [[2, 3]]


def test_an_error_reaches_those_of_its_batch_only(squares: Squares, executor: ThreadPoolExecutor) -> None:
    async def use() -> None:
        batcher = Batcher(squares, 2, 0.001, executor)
        squares.fail = True
        failed = await asyncio.gather(batcher([1]), batcher([2]), return_exceptions=True)
        assert [str(error) for error in failed] == ["out of memory"] * 2
        squares.fail = False
        assert [float(row[0]) for row in await batcher([3])] == [9.0]
        assert (batcher.items, batcher.batches) == (1, 1)

    asyncio.run(use())


def test_a_model_that_loses_items_is_refused(executor: ThreadPoolExecutor) -> None:
    batcher = Batcher(lambda items: np.zeros((1, 2), np.float32), 2, 0.001, executor)
    with pytest.raises(RuntimeError, match="embeddings"):
        asyncio.run(batcher([1, 2]))
