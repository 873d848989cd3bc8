import asyncio

from agentic_video.rollout.policy import ScriptedPolicy, Utterance
from agentic_video.systems.base import EpisodeView
from agentic_video.tools.base import Video
from agentic_video.types.message import Message
from agentic_video.types.row import VideoQA
from tests.conftest import MemorySource


def test_a_script_says_what_its_function_says(qa: VideoQA, source: MemorySource) -> None:
    views: list[EpisodeView] = []

    def script(view: EpisodeView) -> str:
        views.append(view)
        return f"turn {len(views)} of three words"

    async def run() -> list[Utterance]:
        policy = ScriptedPolicy(script)
        view = EpisodeView(qa, await Video.open("v", source))
        assert await policy.begin([Message("user", ("anything",))])
        assert await policy.show(("anything",)) and policy.num_tokens == 0
        return [await policy.say(view) for _ in range(2)]

    assert asyncio.run(run()) == [Utterance("turn 1 of three words", 5), Utterance("turn 2 of three words", 5)]
    assert [view.qa for view in views] == [qa, qa]
