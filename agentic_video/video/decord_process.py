"""decord in a process of its own, which can be ended when it spins: ``python -m``, with a file's path.

decord holds Python's lock while it decodes, and for some damaged files it never comes back: no thread of its process
could then notice that a time limit has passed. Over standard output it says how many frames there are and when, then
each frame that standard input asks for: a header of :data:`HEADER`, then that many bytes.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from typing import BinaryIO

HEADER = struct.Struct("<cqqq")
"""Kind, bytes that follow, height and width: ``t`` times in seconds as float64, ``p`` a picture, ``e`` an error."""
REQUEST = struct.Struct("<q")
"""Number of a frame."""


def main() -> None:
    """Answer until standard input ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints isn't an answer
    import decord
    import numpy as np

    def answer(kind: bytes, content: bytes, height: int = 0, width: int = 0) -> None:
        out.write(HEADER.pack(kind, len(content), height, width) + content)
        out.flush()

    def answered(make: Callable[[], None]) -> None:
        try:
            make()
        except Exception as error:
            lines = str(error).splitlines()
            answer(b"e", (lines[-1] if lines else type(error).__name__).encode())

    def opened() -> None:
        nonlocal video
        video = decord.VideoReader(sys.argv[1], ctx=decord.cpu(0), num_threads=1)
        spans = np.asarray(video.get_frame_timestamp(list(range(len(video)))), dtype=np.float64)
        answer(b"t", np.ascontiguousarray(spans[:, 0]).tobytes())

    def picture(index: int) -> None:
        shown = np.ascontiguousarray(video[index].asnumpy())
        answer(b"p", shown.tobytes(), *shown.shape[:2])

    video = None
    decord.logging.set_level(decord.logging.QUIET)
    answered(opened)
    asked: BinaryIO = sys.stdin.buffer
    while len(request := asked.read(REQUEST.size)) == REQUEST.size:
        (index,) = REQUEST.unpack(request)
        answered(lambda index=index: picture(index))


if __name__ == "__main__":
    main()
