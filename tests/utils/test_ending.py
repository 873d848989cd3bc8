import subprocess
import sys

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
