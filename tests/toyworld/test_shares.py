import os
import signal
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import psutil
import pytest
import torch

from agentic_video.toyworld.build.shares import SHARES, shared_out


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Line(torch.nn.Module):
    """``slope * x + offset``, and a weight that takes no part."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
        self.offset = torch.nn.Parameter(torch.tensor(1.0))
        self.idle = torch.nn.Parameter(torch.zeros(3))

    def learn_from(self, step: list[float], share: int) -> npt.NDArray[np.float64]:
        """Add the gradient of half the squares of the share's values, each with all of the slope."""
        mine = step[share::SHARES]
        if not mine:
            return np.zeros(1)
        loss = sum(((self.slope * x + self.offset) ** 2).sum() / 2 for x in mine)
        loss.backward()
        return np.array([loss.item()])


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def cores(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(count)))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_sum_by_hand_whoever_computes_it(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At x = 1, 2, 3 the lines are at (3, 4), (5, 7) and (7, 10): half of the squares 12.5, 37 and 74.5."""
    cores(monkeypatch, count)
    before = children()
    line = Line()
    with shared_out(line, line.learn_from) as gradients:
        assert gradients([1.0, 2.0, 3.0]).tolist() == [124.0]
        assert line.slope.grad is not None and line.offset.grad is not None
        assert line.slope.grad.tolist() == [3 + 10 + 21, 4 + 14 + 30]
        assert line.offset.grad.item() == 36.0
        with torch.no_grad():  # in place, as optimizers do it: the next step is taken with these
            line.slope.copy_(torch.tensor([0.0, 0.0]))
        assert gradients([5.0]).tolist() == [1.0]  # a share with nothing to do
        assert line.offset.grad.item() == 2.0
    assert children() <= before


def test_they_agree_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for count in (1, 2):
        cores(monkeypatch, count)
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Linear(7, 33), torch.nn.Tanh(), torch.nn.Linear(33, 5))
        rows = torch.randn(24, 7)

        def learn_from(step: list[int], share: int, net: torch.nn.Module = net, rows: torch.Tensor = rows):  # type: ignore[no-untyped-def]
            loss = net(rows[step[share::SHARES]]).exp().mean()
            loss.backward()
            return np.array([loss.item()])

        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        with shared_out(net, learn_from) as gradients:
            losses = []
            for step in range(10):
                losses.append(gradients(list(range(step, 24))).tolist())
                optimizer.step()
        found.append((losses, [weight.tolist() for weight in net.parameters()]))
    assert found[0] == found[1]


@pytest.mark.parametrize("count", [1, 2])
def test_a_weight_that_took_part_in_no_share_has_no_gradient(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer leaves such a weight as it is, without decay; one that takes part later has a gradient again."""
    cores(monkeypatch, count)
    line = Line()
    with shared_out(line, line.learn_from) as gradients:
        gradients([1.0, 2.0])
        assert line.idle.grad is None and line.slope.grad is not None
        assert gradients([]).tolist() == [0.0]
        assert line.slope.grad is None and line.offset.grad is None
        gradients([1.0])  # in one share of two
        assert line.slope.grad is not None and line.idle.grad is None
        assert line.slope.grad.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("count", [1, 2])
def test_what_a_share_raises_is_raised_as_it_was(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cores(monkeypatch, count)
    before, line = children(), Line()

    def learn_from(step: list[float], share: int) -> npt.NDArray[np.float64]:
        if 0.0 in step[share::SHARES]:
            raise ValueError(f"demonstration {step.index(0.0)} holds nothing to learn")
        return line.learn_from(step, share)

    with shared_out(line, learn_from) as gradients:
        for wrong, place in (([0.0, 1.0], 0), ([1.0, 0.0], 1)):
            with pytest.raises(ValueError, match=f"^demonstration {place} holds nothing to learn$"):
                gradients(wrong)
        assert gradients([1.0, 2.0, 3.0]).tolist() == [124.0]  # neither share answers for an earlier step
    assert children() <= before


def test_a_process_that_ends_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    cores(monkeypatch, 2)
    before = children()
    line = Line()
    with shared_out(line, line.learn_from) as gradients:
        gradients([1.0, 2.0])
        os.kill(min(children() - before), signal.SIGKILL)
        with pytest.raises(RuntimeError, match="has ended: is there memory left"):
            gradients([1.0, 2.0])
    assert children() <= before


def test_if_one_can_not_be_started_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    cores(monkeypatch, 2)
    before, line, fork, forks = children(), Line(), os.fork, []

    def second_fails() -> int:
        forks.append(1)
        if len(forks) == 2:
            raise OSError("Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", second_fails)
    with pytest.raises(OSError, match="temporarily unavailable"), shared_out(line, line.learn_from):
        pass
    assert len(forks) == 2 and children() <= before
