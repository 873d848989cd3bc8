"""EVA's episodes: what is shown, what calls do, when it ends."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.episode import play
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy
from agentic_video.systems.eva.system import Eva
from agentic_video.types.message import text_of
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef
from tests.conftest import MemorySource
from tests.systems.eva.texts import LOOK, REPLY, SMALL, call, refs, run
from tests.tools.test_base import Slides


def test_the_first_turn_shows_question_length_and_resolution_and_no_frame(qa: VideoQA) -> None:
    trajectory = run(SMALL, qa, MemorySource(60.0, size=(1280, 720)), REPLY)
    system, user = trajectory.opening
    assert (system.role, user.role) == ("system", "user")
    assert "frame_select" in text_of(system.parts) and "{max" not in text_of(system.parts)  # type: ignore[arg-type]
    assert user.parts == (
        "Length: 59 seconds. Original resolution: 720p.\n"
        "What colour flashes at 42 s?\n(A) red\n(B) green\n(C) blue\n(D) grey",
    )


def test_another_overview_can_be_chosen(qa: VideoQA, source: MemorySource) -> None:
    system = replace(SMALL, overview="uniform", overview_frames=6)
    trajectory = run(system, qa, source, REPLY)
    # 600 frames at 10 a second: numbers 0, 119.8, 239.6, 359.4, 479.2, 599
    assert [frame.index for frame in trajectory.frames] == [0, 120, 240, 359, 479, 599]
    assert trajectory.opening[1].parts[2] == "\nFrame 1 at [00:12]: "


def test_an_overview_keeps_within_the_budget_of_a_call(qa: VideoQA) -> None:
    source = MemorySource(60.0, size=(1280, 720))
    trajectory = run(Eva(overview="uniform", overview_frames=64), qa, source, REPLY)
    assert len(trajectory.frames) == 64
    assert sum(frame.width * frame.height // 784 for frame in trajectory.frames) <= 12_000


def test_reply_labels_frames_with_minutes_and_seconds_and_reminds_of_the_question(
    qa: VideoQA, source: MemorySource
) -> None:
    trajectory = run(SMALL, qa, MemorySource(100.0), "<think>x</think>" + call(58, 61), REPLY)
    observation = trajectory.turns[0].observation
    # 58, 59, 60, 61 s
    assert [part for part in observation if isinstance(part, str)][:5] == [
        "<tool_response>",
        "Frame 0 at [00:58]: ",
        "\nFrame 1 at [00:59]: ",
        "\nFrame 2 at [01:00]: ",
        "\nFrame 3 at [01:01]: ",
    ]
    assert isinstance(observation[2], FrameRef)
    assert str(observation[-1]).endswith("(C) blue\n(D) grey</tool_response>")
    assert "What colour flashes at 42 s?" in str(observation[-1])


def test_frames_are_where_and_as_large_as_asked(qa: VideoQA) -> None:
    source = MemorySource(60.0, size=(1280, 720))
    trajectory = run(Eva(csv=False), qa, source, "<think>x</think>" + call(resize=0.5), REPLY)
    assert [ref.time for ref in refs(trajectory)] == [41.0, 41.7, 42.3, 43.0]
    # 640 x 360 to the nearest multiples of 28
    assert {(ref.width, ref.height) for ref in refs(trajectory)} == {(644, 364)}


@pytest.mark.parametrize(("start", "end", "count"), [(0, 10, 11), (60, 60.4, 5), (7.2, 7.8, 1)])
def test_no_more_frames_than_a_video_of_variable_rate_has_there(
    qa: VideoQA, start: float, end: float, count: int
) -> None:
    # by the average of 5.5 a second there would be 56, 3 and 4; between 7 and 8 s there is no frame, and one is shown
    trajectory = run(SMALL, qa, Slides(), "<think>x</think>" + call(start, end, 16), REPLY)
    assert len(refs(trajectory)) == count


def test_several_calls_are_carried_out_in_order_and_numbered_through(qa: VideoQA, source: MemorySource) -> None:
    both = "<think>x</think>" + call(10, 11, 2) + "\n" + call(5, 7, 1)
    trajectory = run(SMALL, qa, source, both, REPLY)
    assert [ref.time for ref in refs(trajectory)] == [10.0, 11.0, 6.0]
    assert "\nFrame 2 at [00:06]: " in trajectory.turns[0].observation
    assert (trajectory.turns[0].legal_calls, trajectory.turns[0].illegal_calls) == (2, 0)


def test_calls_beyond_the_cap_are_refused(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(replace(SMALL, max_calls=2), qa, source, "<think>x</think>" + call(nframes=1) * 5, REPLY)
    assert (trajectory.turns[0].legal_calls, trajectory.turns[0].illegal_calls) == (2, 3)
    assert len(refs(trajectory)) == 2
    assert str(trajectory.turns[0].observation[-1]).startswith("\nError: only 2 calls fit in a turn.")


def test_a_refused_call_next_to_a_legal_call_is_reported(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, "<think>x</think>" + call(nframes=0) + call(nframes=1), REPLY)
    assert trajectory.end is EndReason.ANSWER
    assert (trajectory.tool_calls, trajectory.illegal_calls) == (1, 1)
    assert "Error: call 1: nframes must be a whole number" in str(trajectory.turns[0].observation[-1])


@pytest.mark.parametrize("text", ["<tool_call>{</tool_call>", call(nframes=0), call(70, 80), "I don't know."])
def test_a_turn_that_asks_for_nothing_legal_ends_the_episode(qa: VideoQA, source: MemorySource, text: str) -> None:
    trajectory = run(SMALL, qa, source, text, REPLY)
    assert (trajectory.end, trajectory.illegal_calls, source.requested) == (EndReason.ILLEGAL, 1, 0)


def test_or_an_empty_window_shows_the_whole_video(qa: VideoQA, source: MemorySource) -> None:
    system = replace(SMALL, empty_window="whole_video")
    for window in ((70, 80), (43, 41), (41, 41)):
        trajectory = run(system, qa, source, "<think>x</think>" + call(*window, 3), REPLY)
        assert (trajectory.end, trajectory.illegal_calls) == (EndReason.ANSWER, 0)
        # the last of 600 frames is at 59.9 s
        assert [ref.time for ref in refs(trajectory)] == pytest.approx([0.0, 30.0, 59.9])


def test_or_the_agent_is_told(qa: VideoQA, source: MemorySource) -> None:
    system = replace(SMALL, end_on_refusal=False)
    trajectory = run(system, qa, source, "<tool_call>{</tool_call>", call(nframes=0), REPLY)
    assert trajectory.end is EndReason.ANSWER
    assert [turn.illegal_calls for turn in trajectory.turns] == [1, 1, 0]
    assert "Error: the call is not valid JSON." in str(trajectory.turns[0].observation[-1])
    assert "Error: call 1: nframes" in str(trajectory.turns[1].observation[-1])
    assert run(system, qa, source, "I don't know.", REPLY).end is EndReason.ILLEGAL


def test_an_unknown_tool_is_refused(qa: VideoQA, source: MemorySource) -> None:
    text = call().replace("frame_select", "shell")
    assert run(SMALL, qa, source, text).end is EndReason.ILLEGAL


def test_image_cap_ends_before_the_images_are_shown(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, "<think>x</think>" + call(0, 50, 16))
    # 16 a call: 48 fit, 64 don't
    assert (trajectory.end, len(trajectory.frames)) == (EndReason.IMAGE_BUDGET, 48)
    assert source.requested == 48, "those of the last call aren't decoded"


def test_calls_that_together_ask_for_too_many_decode_nothing(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, "<think>x</think>" + 4 * call(0, 50, 16))
    assert (trajectory.end, trajectory.error) == (EndReason.IMAGE_BUDGET, "64 images, at most 48 fit")
    assert (trajectory.turns[0].legal_calls, source.requested) == (4, 0)


class OneTurnEngine:
    """Generates given ids and stops as an engine does: at the end-of-turn token, a stop text or the limit."""

    def __init__(self, texts: Sequence[str], chat_format: ChatFormat):
        self.format = chat_format
        self.turns = [[*chat_format.encode(text), *chat_format.eos_ids, 5, 5, 5] for text in texts]
        self.stops: list[tuple[str, ...]] = []

    async def generate(self, request: GenerationRequest) -> Completion:
        self.stops.append(tuple(request.stop))
        ids = self.turns[len(self.stops) - 1]
        length = min(ids.index(*self.format.eos_ids) + 1, request.max_tokens)
        return Completion(tuple(ids[:length]))


def test_turns_end_with_the_end_of_turn_token(qa: VideoQA, source: MemorySource, chat_format: ChatFormat) -> None:
    engine = OneTurnEngine([LOOK + call(1, 2, 1), REPLY], chat_format)
    policy = TokenPolicy(engine, chat_format, TokenLimits(10**6, 10**6, 10**6), SMALL)
    trajectory = asyncio.run(play(SMALL, policy, qa, source))
    assert engine.stops == [(), ()]
    assert [turn.finished for turn in trajectory.turns] == [True, True]
    assert [turn.text for turn in trajectory.turns] == [LOOK + call(1, 2, 1), REPLY]
    assert (trajectory.end, trajectory.tool_calls) == (EndReason.ANSWER, 2)
    assert policy.sequence is not None
    shown = chat_format.decode(policy.sequence.response_ids)
    assert shown.count("<|im_end|>") == 3  # of both turns and of the reply; none twice
