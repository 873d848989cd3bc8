import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentic_video.tools.base import Video
from agentic_video.types.frame import Frame
from agentic_video.video.sampling import nearest_indices
from tests.conftest import MemorySource


class Slides(MemorySource):
    """A minute of one frame a second, then one of ten: 660 frames, 5.5 a second on average."""

    times = [float(second) for second in range(60)] + [60 + number / 10 for number in range(600)]

    def __init__(self) -> None:
        super().__init__(duration=120.0, fps=5.5)
        self.info = replace(self.info, variable_frame_rate=True)

    def draw(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> list[Frame]:
        frames = super().draw(path, indices, size)
        return [replace(frame, time=self.times[frame.index]) for frame in frames]

    def indices_at(self, path: str, times: Sequence[float]) -> list[int]:
        return nearest_indices(self.times, times)


class Scores:
    """A Retriever with given similarities by frame number; keeps what it is asked."""

    def __init__(self, scores: dict[int, float]) -> None:
        self.scores = scores
        self.asked: list[tuple[str, list[int], str]] = []

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        self.asked.append((path, list(indices), prompt))
        return [self.scores[index] for index in indices]

    async def acompare(self, path: str, indices: Sequence[int], prompt: str) -> Any:
        scores = await self.asimilarities(path, indices, prompt)
        return np.array(scores, np.float32), np.eye(len(scores), dtype=np.float32)


def test_a_video_knows_its_facts_and_gives_its_frames(source: MemorySource) -> None:
    async def use() -> None:
        video = await Video.open("memory", source)
        assert (video.path, video.info) == ("memory", source.info)
        assert [frame.index for frame in await video.frames([5, 2, 5])] == [5, 2, 5]
        [frame] = await video.frames_at([1.04], (32, 16))
        assert (frame.index, frame.time, frame.width, frame.height) == (10, 1.0, 32, 16)

    asyncio.run(use())


def test_the_best_matches_come_in_order_of_time_the_earlier_of_equals_first(source: MemorySource) -> None:
    retriever = Scores({3: 0.1, 7: 0.9, 20: 0.5, 30: 0.5, 40: 0.9})
    video = Video("memory", source.info, source, retriever)
    assert asyncio.run(video.best_matches("red", [40, 30, 20, 7, 3], 3)) == [7, 20, 40]
    assert asyncio.run(video.best_matches("red", [3, 7], 9)) == [3, 7]
    assert retriever.asked[0] == ("memory", [40, 30, 20, 7, 3], "red")


def test_without_a_retriever_the_setting_is_named(source: MemorySource) -> None:
    video = Video("memory", source.info, source)
    for asked in (video.best_matches("red", [1], 1), video.similarities("red", [1])):
        with pytest.raises(ValueError, match=r"agentic_video\.retrieval\.model"):
            asyncio.run(asked)


def test_similarities_are_those_of_the_video_s_own_frames(source: MemorySource) -> None:
    retriever = Scores({3: 0.25, 7: 0.5})
    relevance, alike = asyncio.run(Video("memory", source.info, source, retriever).similarities("red", [7, 3]))
    assert relevance.tolist() == [0.5, 0.25] and alike.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert retriever.asked == [("memory", [7, 3], "red")]


@pytest.mark.parametrize(
    ("time", "place"),
    [
        (7.0, 7),  # a frame's own
        (7.1, 7.5),
        (7.9, 7.5),  # closest is 8, which is later
        (60.0, 60),
        (61.0, 70),
        (61.04, 70.5),
        (120.0, 659.5),  # the last is at 119.9
    ],
)
def test_times_of_a_variable_rate_are_those_of_frames(time: float, place: float) -> None:
    video = Video("memory", Slides().info, Slides())
    assert asyncio.run(video.frame_positions([time], (28, 28))) == [place]


def test_a_constant_rate_needs_no_frames() -> None:
    source = MemorySource()
    assert asyncio.run(Video("memory", source.info, source).frame_positions([1.0, 2.55], (28, 28))) == pytest.approx(
        [10, 25.5]
    )
    assert not source.requested
