"""A training step's gradient in two shares, computed by two processes if there are two cores.

A tiny model's operations are too small for threads; processes wait for each other only once per step. The shares, and
their sum, are the same in either case."""

import contextlib
import mmap
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from agentic_video.utils.host import cpu_limit
from agentic_video.utils.process import end_with_parent

Step = TypeVar("Step")
Work = Callable[[Step, int], npt.NDArray[np.float64]]
"""Adds a share's gradient to a model's, and returns losses that may be added up."""

SHARES = 2
"""Shares of a step; another number sums, and so learns, differently."""


@contextlib.contextmanager
def shared_out(model: Any, work: Work[Step]) -> Iterator[Callable[[Step], npt.NDArray[np.float64]]]:
    """Compute gradients of a model share by share; its weights move to memory that processes share.

    Yields:
        A function that sets the model's gradient to a step's, and returns the step's losses.
    """
    if torch.get_num_threads() == 1 and cpu_limit() >= SHARES:
        with _at_once(model, work) as gradients:
            yield gradients
    else:
        yield lambda step: _yield_fairly(model, work, step)


def _yield_fairly(model: Any, work: Work[Step], step: Step) -> npt.NDArray[np.float64]:
    model.zero_grad()
    return np.sum([work(step, share) for share in range(SHARES)], 0)


@contextlib.contextmanager
def _at_once(model: Any, work: Work[Step]) -> Iterator[Callable[[Step], npt.NDArray[np.float64]]]:
    """See :func:`shared_out`. Each share has its own process: torch's backward pass can't run in a process whose
    parent has run one."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    with torch.no_grad():
        for weight, place in zip(weights, _shared(weights), strict=True):
            weight.set_(place.copy_(weight))
    slopes = [_shared(weights) for _ in range(SHARES)]

    def compute(share: int, connection: Connection) -> None:
        end_with_parent()
        with contextlib.suppress(EOFError, ConnectionError):  # the parent has ended
            while True:
                step = connection.recv()
                model.zero_grad()
                try:
                    losses = work(step, share)
                except Exception as error:
                    connection.send(error)
                    continue
                for weight, slope in zip(weights, slopes[share], strict=True):
                    slope.zero_() if weight.grad is None else slope.copy_(weight.grad)
                connection.send((losses, [weight.grad is not None for weight in weights]))

    context = get_context("fork")  # what is to be learnt is there already
    connections: list[Connection] = []
    processes: list[ForkProcess] = []

    def gradients(step: Step) -> npt.NDArray[np.float64]:
        try:
            for connection in connections:
                connection.send(step)
            answers = [connection.recv() for connection in connections]
        except (EOFError, ConnectionError) as error:
            raise RuntimeError("a process that taught the tiny model has ended: is there memory left?") from error
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        losses, taught = zip(*answers, strict=True)
        for weight, took_part, *parts in zip(weights, np.any(taught, 0), *slopes, strict=True):
            weight.grad = torch.stack(parts).sum(0) if took_part else None
        total: npt.NDArray[np.float64] = np.sum(losses, 0)
        return total

    try:
        for share in range(SHARES):
            here, there = context.Pipe()
            process = context.Process(target=compute, args=(share, there), daemon=True)
            process.start()
            there.close()
            connections.append(here)
            processes.append(process)
        yield gradients
    finally:
        for process in processes:
            process.kill()
            process.join()
        for connection in connections:
            connection.close()


def _shared(like: list[torch.Tensor]) -> list[torch.Tensor]:
    """Zeros of the same shapes and type in memory shared with processes that are forked later."""
    memory = mmap.mmap(-1, max(1, sum(weight.numel() * weight.element_size() for weight in like)))
    made, start = [], 0
    for weight in like:
        made.append(torch.frombuffer(memory, dtype=weight.dtype, count=weight.numel(), offset=start).view(weight.shape))
        start += weight.numel() * weight.element_size()
    return made
