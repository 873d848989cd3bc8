"""decord in a separate process that can be killed: ``python -m``, with a file's path.

decord holds Python's lock while it decodes and never returns for some damaged files, so no thread of its process could
enforce a time limit. Standard output gets the frames' times, then each frame that standard input requests: a header of
:data:`HEADER`, then that many bytes.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO

HEADER = struct.Struct("<cqqq")
"""Kind, bytes that follow, height and width: ``t`` times in seconds as float64, ``p`` a picture, ``e`` an error."""
REQUEST = struct.Struct("<q")
"""Number of a frame."""


def main() -> None:
    """Answer until standard input ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library's prints aren't answers
    import decord
    import numpy as np

    video: Any = None

    def answer(kind: bytes, content: bytes, height: int = 0, width: int = 0) -> None:
        out.write(HEADER.pack(kind, len(content), height, width) + content)
        out.flush()

    def try_to(make: Callable[[], None]) -> None:
        try:
            make()
        except Exception as error:
            lines = str(error).splitlines()
            answer(b"e", (lines[-1] if lines else type(error).__name__).encode())

    def open_file() -> None:
        nonlocal video
        video = decord.VideoReader(sys.argv[1], ctx=decord.cpu(0), num_threads=1)
        spans = np.asarray(video.get_frame_timestamp(list(range(len(video)))), dtype=np.float64)
        answer(b"t", np.ascontiguousarray(spans[:, 0]).tobytes())

    def send_frame(index: int) -> None:
        shown = np.ascontiguousarray(video[index].asnumpy())
        answer(b"p", shown.tobytes(), *shown.shape[:2])

    decord.logging.set_level(decord.logging.QUIET)
    try_to(open_file)
    requests: BinaryIO = sys.stdin.buffer
    while len(request := requests.read(REQUEST.size)) == REQUEST.size:
        (index,) = REQUEST.unpack(request)
        try_to(partial(send_frame, index))


if __name__ == "__main__":
    main()
