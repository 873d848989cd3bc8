"""TimeSearch-R's grammar: what a text is, which calls can be read, how frames are labelled."""

import numpy as np
import pytest

from agentic_video.systems.timesearch.grammar import first_block, labelled, parse_turn, times_text
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Clip, Frame
from tests.systems.timesearch.texts import LOOK, REPLY

LOOKS = Calls((ToolCall("seek_video_frames", {"start_time": 41, "end_time": 43}),))
NEITHER = Illegal("neither a call nor an answer")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (LOOK, LOOKS),
        (LOOK + "\n and more", LOOKS),
        (REPLY, Answer("B")),
        # the first one counts, whichever it is
        (LOOK + REPLY, LOOKS),
        (REPLY + LOOK, Answer("B")),
        (LOOK + LOOK.replace("41", "11"), LOOKS),
        ("<answer>A</answer><answer>B</answer>", Answer("A")),
        # one that isn't closed opens nothing
        ("<tool_call>{} <answer> B </answer>", Answer("B")),
        ("<answer>B", NEITHER),
        ("<tool_call>{}", NEITHER),
        ("</answer><answer>", NEITHER),
        ("", NEITHER),
        # a thought is no shelter (released code)
        ("<think><answer>B</answer></think>", Answer("B")),
        ("<answer></answer>", Answer("")),
    ],
)
def test_reading_a_turn(text: str, action: Action) -> None:
    assert parse_turn(text) == action


@pytest.mark.parametrize(
    "body",
    [
        "[1]",
        "{}",
        "{name: 1}",
        '{"name": "x"}',
        '{"name": ["x"], "arguments": {}}',
        '{"name": "x", "arguments": [1, 9]}',
        '{"name": "x", "arguments": {"a": [1]}}',
        '{"name": "x", "arguments": {"a": {}}}',
        '{"name": "x", "arguments": {"a": NaN}}',
        '{"name": "x", "arguments": "{"}',
        '{"name": "x", "arguments": "[1]"}',
        r'{"name": "x", "arguments": {"a": "\ud800"}}',
        r'{"name": "x", "arguments": {"\ud800": 1}}',
        r'{"name": "\ud800", "arguments": {}}',
        "[" * 1_000,
        '{"name": "x", "arguments": {"a": "' + "x" * 2_000 + '"}}',
    ],
)
def test_calls_that_cannot_be_read(body: str) -> None:
    # the agent is told: it is a call all the same
    assert isinstance(parse_turn(f"<tool_call>{body}</tool_call>"), Illegal)
    found = first_block(f"<tool_call>{body}</tool_call>")
    assert found is not None and found.tag == "tool_call"


def frame(index: int, time: float) -> Frame:
    return Frame(index, time, np.zeros((2, 2, 3), np.uint8))


def test_labels_are_times_in_tenths_of_a_second() -> None:
    first, second = frame(375, 12.54), frame(400, 13.333)
    assert labelled([first, second]) == ("12.5s", first, "13.3s", second)
    assert times_text([first, second]) == "12.5s, 13.3s"
    assert labelled([]) == ()


def test_a_preview_is_one_clip_without_labels() -> None:
    frames = [frame(0, 0.0), frame(5, 0.5)]
    (clip,) = labelled(frames, "video")
    assert isinstance(clip, Clip) and list(clip.frames) == frames
    # a single frame is no video
    assert labelled(frames[:1], "video") == ("0.0s", frames[0])
