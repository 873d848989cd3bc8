"""VideoZoomer's oracle: its texts. What it finds in the synthetic world is in tests/toyworld/test_oracle.py."""

from dataclasses import replace

from agentic_video.systems.base import EpisodeView
from agentic_video.systems.videozoomer import oracle
from agentic_video.tools.base import Video
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef
from tests.conftest import MemorySource
from tests.systems.videozoomer.texts import SMALL, run

LOOK = '<think>look near 42</think><video_zoom>{"segment": [42, 43], "fps": 4}</video_zoom>'
REPLY = "<think>it is green</think><answer>green</answer>"


def test_the_oracle_zooms_where_the_event_is_or_answers_at_once(qa: VideoQA, source: MemorySource) -> None:
    view = EpisodeView(qa, Video("memory", source.info, source))
    assert oracle.turns(view, 42.4, "green", "B") == (LOOK, REPLY)
    assert oracle.turns(view, None, "green", "B") == (REPLY,)


def test_where_the_order_is_asked_for_it_begins_before_the_event(qa: VideoQA, source: MemorySource) -> None:
    asked = replace(qa, extra={**qa.extra, "kind": "order"})
    view = EpisodeView(asked, Video("memory", source.info, source))
    assert '"segment": [41, 43]' in oracle.turns(view, 42.4, "green", "B")[0]


def test_two_of_its_four_frames_lie_within_a_second(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, LOOK, REPLY)
    assert trajectory.end is EndReason.ANSWER
    shown = [part.time for part in trajectory.turns[0].observation if isinstance(part, FrameRef)]
    assert [abs(time - 42) < 0.45 for time in shown] == [True, True, False, False]
