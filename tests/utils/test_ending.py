import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = """
import atexit, threading, time
from agentic_video.utils.ending import end_now

class Kept:
    def __del__(self):
        print("given back")

kept = Kept()
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print("main")
end_now()
print("never")
"""


def test_threads_exit_functions_and_what_was_printed_are_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", TEXT], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "main\nthread\nat exit\n"


PRINTS = "from agentic_video.utils.ending import end_now; print('what was built'); end_now()"


def ended(shell: str) -> "subprocess.CompletedProcess[str]":
    """Python with :data:`PRINTS` as ``"$@"`` of a shell's command."""
    command = ["bash", "-c", shell, "bash", sys.executable, "-c", PRINTS]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=buffered)


def test_what_was_printed_is_there() -> None:
    done = ended('"$@"')
    assert (done.returncode, done.stdout, done.stderr) == (0, "what was built\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_what_can_not_be_written_is_told() -> None:
    done = ended('"$@" >/dev/full')
    assert done.returncode == 120
    assert re.fullmatch(r"what was printed can't be written: .*No space left on device\n", done.stderr)


def test_a_closed_output_is_no_error() -> None:
    done = ended('"$@" >&-')
    assert (done.returncode, done.stderr) == (0, "")
