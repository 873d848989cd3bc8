"""Which frames an agent sees first, of each kind of overview."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agentic_video.systems.base import EpisodeView
from agentic_video.systems.overview import overview_frames
from agentic_video.systems.shown import OverviewKind
from agentic_video.tools.base import Video
from agentic_video.types.frame import Frame
from agentic_video.types.row import RowError, VideoQA
from tests.conftest import MemorySource
from tests.systems.played import Nearest


def frames(
    kind: OverviewKind,
    qa: VideoQA,
    *,
    source: MemorySource | None = None,
    retriever: Nearest | None = None,
    **options: Any,
) -> list[Frame]:
    source = source or MemorySource(60.0)  # 600 frames, ten a second
    view = EpisodeView(qa, Video("memory", source.info, source, retriever))
    return asyncio.run(overview_frames(kind, view, **{"count": 4, "size": (28, 28), **options}))


def numbers(kind: OverviewKind, qa: VideoQA, **options: Any) -> list[int]:
    return [frame.index for frame in frames(kind, qa, **options)]


def test_uniform_frames_span_the_whole_video(qa: VideoQA) -> None:
    # linspace(0, 599, 4) = 0, 199.67, 399.33, 599
    assert numbers("uniform", qa) == [0, 200, 399, 599]
    assert numbers("uniform", qa, count=1) == [0]
    # two frames only
    assert numbers("uniform", qa, source=MemorySource(0.2)) == [0, 1]


def test_frames_have_the_size_asked_for_or_their_own(qa: VideoQA) -> None:
    assert {(frame.width, frame.height) for frame in frames("uniform", qa, size=(56, 28))} == {(56, 28)}
    assert {(frame.width, frame.height) for frame in frames("uniform", qa, size=None)} == {(64, 64)}


def test_a_rate_that_fits_is_kept_and_one_that_does_not_becomes_uniform(qa: VideoQA) -> None:
    assert numbers("rate", qa, fps=0.05) == [0, 200, 400]  # 0, 20, 40 s
    assert numbers("rate", qa, fps=1 / 15) == [0, 150, 300, 450]  # exactly four
    assert numbers("rate", qa, fps=0.1) == [0, 200, 399, 599]  # six would be too many
    assert numbers("rate", qa, fps=0.0817) == [0, 200, 399, 599]  # 4.9 times: five
    assert numbers("rate", qa, fps=1e9) == [0, 200, 399, 599], "unused times aren't listed"


def test_keyframes_close_to_evenly_spaced_frames(qa: VideoQA) -> None:
    # keyframes at 0, 50 ... 550; uniform frames at 0, 200, 399, 599
    shown = frames("keyframes", qa)
    assert [frame.index for frame in shown] == [0, 200, 400, 550]
    assert [frame.time for frame in shown] == [0.0, 20.0, 40.0, 55.0]


def test_too_few_keyframes_give_evenly_spaced_frames(qa: VideoQA) -> None:
    # 100 frames, keyframes at 0 and 50
    assert numbers("keyframes", qa, source=MemorySource(10.0), count=2) == [0, 50]
    assert numbers("keyframes", qa, source=MemorySource(10.0), count=3) == [0, 50, 99]
    assert numbers("keyframes", qa, source=MemorySource(10.0)) == [0, 33, 66, 99]


def test_listed_times_in_order_and_within_the_video(qa: VideoQA) -> None:
    listed = replace(qa, extra={"overview_times": [42, 3.04, 99.0]})
    assert numbers("listed", listed) == [30, 420, 599]  # 99 s is the end
    assert numbers("listed", listed, count=2) == [30, 420]


@pytest.mark.parametrize(
    "times", [None, [], "1 2", 3.0, [1.0, None], ["1"], [-1.0], [float("nan")], [float("inf")], {"0": 1.0}]
)
def test_rows_without_usable_times_are_refused(qa: VideoQA, times: Any) -> None:
    with pytest.raises(RowError, match=r"row q1: field 'extra_info\.overview_times' must list times in seconds"):
        frames("listed", replace(qa, extra={"overview_times": times}))


def test_retrieval_shows_the_best_of_128_candidates_in_order_of_time(qa: VideoQA) -> None:
    retriever = Nearest(301)
    # candidates 599 / 127 = 4.717 apart; numbers 62 to 65 of them are 292.4, 297.1, 301.9 and 306.6
    assert numbers("retrieval", qa, retriever=retriever) == [292, 297, 302, 307]
    [(prompt, candidates)] = retriever.asked
    assert prompt == "What colour flashes at 42 s?"
    assert (len(candidates), candidates[0], candidates[-1]) == (128, 0, 599)


def test_retrieval_of_a_short_video_compares_all_frames(qa: VideoQA) -> None:
    retriever = Nearest(7)
    assert numbers("retrieval", qa, source=MemorySource(1.0), retriever=retriever) == [5, 6, 7, 8]
    assert retriever.asked[0][1] == list(range(10))


def test_no_overview_reads_nothing(qa: VideoQA) -> None:
    source = MemorySource()
    assert frames("none", qa, source=source) == []
    assert frames("uniform", qa, source=source, count=0) == []
    assert source.requested == 0
