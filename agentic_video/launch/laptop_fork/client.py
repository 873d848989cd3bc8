"""Stands in for ``python`` where a job's processes are forked: asks for one, and is what its starter sees.

Run as ``python -S -E client.py <socket> <python> <arguments>``; it imports as little as possible. Its descriptors
become those of the forked process, signals are passed on to it, and its exit status is this one's. Where no server
answers, it becomes Python itself. See :mod:`agentic_video.launch.laptop_fork.server`.
"""

import contextlib
import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)


def open_descriptors() -> "list[int]":
    """Open file descriptors of this process, without the listing's own."""
    listed = [int(name) for name in os.listdir("/proc/self/fd")]
    found = []
    for number in listed:
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return sorted(found)


def main() -> None:
    """Command line."""
    address, python, *arguments = sys.argv[1:]
    numbers = open_descriptors()
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(address)
        asked = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd(), "numbers": numbers}
        text = json.dumps(asked).encode()
        socket.send_fds(server, [len(text).to_bytes(4, "little")], numbers)
        server.sendall(text)
        answers = server.makefile("r")
        process = int(answers.readline())
    except (OSError, ValueError):
        os.execv(python, [python, *arguments])

    def pass_on(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    status = int(answers.readline() or -signal.SIGKILL)
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL always does what it does
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
