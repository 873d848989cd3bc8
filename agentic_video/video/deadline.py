"""The time that reading a video may take."""

from __future__ import annotations

import math
import time

from agentic_video.video.errors import VideoError


class Deadline:
    """A time limit that begins to run when this is made; whoever does the work checks it between its steps.

    Args:
        path: The video that is read, for the error.
        limit: Seconds; None for no limit.
    """

    def __init__(self, path: str, limit: float | None) -> None:
        self._path = path
        self._limit = limit
        self._end = math.inf if limit is None else time.monotonic() + limit

    def left(self) -> float | None:
        """Seconds that are left, a little where the limit has passed; None for no limit."""
        return None if self._limit is None else max(self._end - time.monotonic(), 1e-3)

    def extend(self, seconds: float) -> None:
        """Let it run longer: by what was spent waiting for others."""
        self._end += seconds

    def check(self) -> None:
        """Do nothing while there is time left.

        Raises:
            VideoError: ``timeout``, once the limit has passed.
        """
        if time.monotonic() > self._end:
            raise VideoError(
                self._path,
                "timeout",
                f"decoding took longer than {self._limit:g} s; raise the time limit, ask for fewer frames, or "
                "re-encode the video with shorter keyframe intervals",
            )
