"""Video-o3's oracle: its texts. What it finds in the synthetic world is in tests/toyworld/test_oracles.py."""

from dataclasses import replace

from agentic_video.systems.base import EpisodeView
from agentic_video.systems.videoo3 import VideoO3, oracle
from agentic_video.tools.base import Video
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, recorded_frames
from tests.conftest import MemorySource
from tests.systems.videoo3.texts import run

LOOK = '<think>look near 42</think><grounding>{"temporal_segment": [42, 43], "sampling_strategy": "fine"}</grounding>'
REPLY = "<think>it is green</think><answer>green</answer>"


def test_the_oracle_looks_where_the_event_is_or_answers_at_once(qa: VideoQA, source: MemorySource) -> None:
    view = EpisodeView(qa, Video("memory", source.info, source))
    assert oracle.turns(view, 42.4, "green", "B") == (LOOK, REPLY)
    assert oracle.turns(view, None, "green", "B") == (REPLY,)
    asked = replace(view, qa=replace(qa, extra={**qa.extra, "kind": "order"}))
    assert '"temporal_segment": [41, 43]' in oracle.turns(asked, 42.4, "green", "B")[0]


def test_two_of_its_four_frames_lie_within_a_second(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(VideoO3(answer_match="robust"), qa, source, LOOK, REPLY)
    assert trajectory.end is EndReason.ANSWER
    shown = [frame.time for frame in recorded_frames(trajectory.turns[0].observation)]
    assert [abs(time - 42) < 0.45 for time in shown] == [True, True, False, False]
