from dataclasses import replace

from agentic_video.rollout.costs import episode_costs
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.types.trajectory import Aside
from agentic_video.video.source import CountingSource
from agentic_video.video.store import FrameStore
from tests.types.test_trajectory import FULL


def test_costs_of_an_episode(chat_format: ChatFormat) -> None:
    source = CountingSource(FrameStore())
    source.requested, source.decoded, source.decode_seconds = 5, 3, 0.5
    assert episode_costs(FULL, chat_format, source) == {
        # two frames of 56 x 28 pixels, a token each 28 x 28
        "visual_tokens": 4.0,
        "frames_requested": 5.0,
        "frames_decoded": 3.0,
        "decode_seconds": 0.5,
    }
    asked = replace(FULL, asides=(Aside((), "yes", 3, prompt_tokens=20), Aside((), "no", 2)))
    costs = episode_costs(asked, chat_format, source)
    assert (costs["asides"], costs["aside_tokens"]) == (2.0, 25.0)
