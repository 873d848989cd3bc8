import asyncio
import re
from typing import Any

import pytest
import ray

from agentic_video.training.loop.reward_manager import while_answering
from agentic_video.utils.time_limit import TimeLimitError

SHORT = 0.05


class Worker:
    def __init__(self, seconds: float):
        self.seconds = seconds
        self.asked = 0
        self.__ray_call__ = self

    async def remote(self, function: Any) -> Any:
        self.asked += 1
        await asyncio.sleep(self.seconds)
        return function(self)


async def later(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "scored"


def test_a_slow_score_of_workers_that_answer_is_waited_for() -> None:
    worker = Worker(0.0)
    assert asyncio.run(while_answering(later(5 * SHORT), (worker, object()), SHORT)) == "scored"
    assert worker.asked >= 2


def test_a_fast_score_checks_no_worker() -> None:
    async def fail() -> None:
        raise ValueError("row 7")

    worker = Worker(0.0)
    assert asyncio.run(while_answering(later(0.0), (worker,), 30.0)) == "scored"
    assert asyncio.run(while_answering(later(SHORT), (worker,), 0.0)) == "scored"
    with pytest.raises(ValueError, match="row 7"):
        asyncio.run(while_answering(fail(), (worker,), 30.0))
    assert worker.asked == 0


def test_a_worker_that_stands_still_fails_what_waits_for_it() -> None:
    with pytest.raises(TimeLimitError, match="timeout"):
        asyncio.run(while_answering(later(1000.0), (Worker(0.0), Worker(1000.0)), SHORT))


@pytest.mark.ray
def test_a_regular_expression_that_backtracks_in_a_ray_worker() -> None:
    @ray.remote
    class Scorer:
        async def compute_score(self, text: str) -> bool:
            return re.fullmatch("(a+)+b", text) is not None

    ray.init(num_cpus=1, include_dashboard=False)
    try:
        worker = Scorer.remote()

        async def score(text: str) -> bool:
            scored: bool = await worker.compute_score.remote(text)
            return scored

        assert asyncio.run(while_answering(score("aab"), (worker,), 20.0))
        with pytest.raises(TimeLimitError):
            asyncio.run(while_answering(score("a" * 60), (worker,), 2.0))
    finally:
        ray.shutdown()
