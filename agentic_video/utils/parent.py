"""Processes that don't outlive the one that started them."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1


def signal_at_parent_end(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when the one that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
