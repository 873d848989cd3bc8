import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.rollout.policy import ScriptedPolicy, Utterance, cut_at_stop
from agentic_video.systems.base import EpisodeView
from agentic_video.tools.base import Video
from agentic_video.types.message import Message
from agentic_video.types.row import VideoQA
from tests.conftest import MemorySource


def test_a_script_plays_the_turns_of_its_function(qa: VideoQA, source: MemorySource) -> None:
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


@pytest.mark.parametrize(
    ("text", "stops", "read"),
    [
        ("a</x>", ("</x>",), "a</x>"),
        ("a</x>.", ("</x>",), "a</x>"),
        ("a</x>b</x>", ("</x>",), "a</x>"),
        ("a</y>b</x>", ("</x>", "</y>"), "a</y>"),
        ("a</x", ("</x>",), "a</x"),
        ("a</x>.", (), "a</x>."),
        ("", ("</x>",), ""),
    ],
)
def test_a_turn_is_read_up_to_its_first_stop_text(text: str, stops: tuple[str, ...], read: str) -> None:
    assert cut_at_stop(text, stops) == read


@given(st.text("</x>. ", max_size=30))
def test_a_cut_turn_holds_the_stop_text_at_its_end_only(text: str) -> None:
    read = cut_at_stop(text, ("</x>",))
    assert text.startswith(read)
    assert read.find("</x>") in (-1, len(read) - 4)
    assert (read == text) or read.endswith("</x>")
    assert cut_at_stop(read, ("</x>",)) == read
