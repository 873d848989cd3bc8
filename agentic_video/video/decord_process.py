"""decord in a separate process that can be killed: ``python -m``, with a file's path and a connection's descriptor.

decord holds Python's lock while it decodes and never returns for some damaged files, so no thread of its process could
enforce a time limit. The frames' times are sent first, then each requested frame: an array, or an error's last line.
"""

import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any


def main() -> None:
    """Answer until the connection is closed."""
    import decord
    import numpy as np

    connection = Connection(int(sys.argv[2]))
    video: Any = None

    def answer(make: Callable[[], np.ndarray]) -> None:
        try:
            connection.send(np.ascontiguousarray(make()))
        except Exception as error:
            lines = str(error).splitlines()
            connection.send(lines[-1] if lines else type(error).__name__)

    def times() -> np.ndarray:
        nonlocal video
        video = decord.VideoReader(sys.argv[1], ctx=decord.cpu(0), num_threads=1)
        spans = np.asarray(video.get_frame_timestamp(list(range(len(video)))), dtype=np.float64)
        return spans[:, 0]

    def frame(index: int) -> np.ndarray:
        picture: np.ndarray = video[index].asnumpy()
        return picture

    decord.logging.set_level(decord.logging.QUIET)
    answer(times)
    while True:
        try:
            index = connection.recv()
        except EOFError:
            return
        answer(partial(frame, index))


if __name__ == "__main__":
    main()
