import math
import time

import pytest

from agentic_video.video.deadline import Deadline
from agentic_video.video.errors import VideoError


@pytest.mark.parametrize("limit", [None, math.inf, 1e9])
def test_nothing_happens_while_there_is_time(limit: float | None) -> None:
    Deadline("a.mp4", limit).check()


def test_a_deadline_that_has_passed_says_what_to_do() -> None:
    deadline = Deadline("a.mp4", 1e-6)
    time.sleep(1e-5)
    for _ in range(2):
        with pytest.raises(VideoError, match=r"longer than 1e-06 s; raise the time limit") as caught:
            deadline.check()
        assert (caught.value.path, caught.value.reason) == ("a.mp4", "timeout")
