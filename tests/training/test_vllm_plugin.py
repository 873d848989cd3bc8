import time
from types import SimpleNamespace

from agentic_video.training.seams.vllm_sleep import sleep_between_messages


class Condition:
    """The part of vLLM's SpinCondition that waits."""

    def __init__(self) -> None:
        self.last_read = time.monotonic()
        self.busy_loop_s = 1.0
        self.polled: list[int | None] = []
        self.spun = 0

    def wait(self, timeout_ms: int | None = None) -> None:
        if time.monotonic() <= self.last_read + self.busy_loop_s:
            self.spun += 1
        else:
            self.polled.append(timeout_ms)


def test_it_polls_briefly_where_vllm_spins_and_as_before_later() -> None:
    module = SimpleNamespace(SpinCondition=type("SpinCondition", (Condition,), {}))
    sleep_between_messages(module)  # type: ignore[arg-type]
    condition = module.SpinCondition()
    condition.wait(None)
    condition.last_read -= 10
    condition.wait(700)
    condition.wait(None)
    assert condition.spun == 0
    assert condition.polled == [5, 700, None]
    assert condition.busy_loop_s == 1.0
