"""Processes that don't outlive the one that started them."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1


def signal_at_parent_end(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when the one that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def end_with_parent() -> None:
    """Let this process end with the one that started it, however that ends.

    Ctrl-C reaches all processes of a terminal: the one that waits for the others ends them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal_at_parent_end(signal.SIGKILL)
