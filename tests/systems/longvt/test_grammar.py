"""LongVT's grammar: what a text is, which calls can be read, what a call is answered with."""

import numpy as np
import pytest

from agentic_video.systems.longvt.grammar import parse_turn, reply
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from tests.systems.longvt.texts import LOOK, REPLY, call


def crop(start: object = 41, end: object = 43) -> ToolCall:
    return ToolCall("crop_video", {"video_path": "memory", "start_time": start, "end_time": end})


CROP = crop()


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (LOOK, Calls((CROP,))),
        (LOOK + "\n" + call(1, 2.5), Calls((CROP, crop(1, 2.5)))),
        (REPLY, Answer("B")),
        ("<answer> A </answer> no, <answer> B </answer>", Answer("B")),
        ("<answer></answer>", Answer("")),
        # a call is carried out whatever else the turn says, and wherever it stands
        (REPLY + LOOK, Calls((CROP,))),
        (LOOK + REPLY, Calls((CROP,))),
        (f"<think>{call()}</think><answer>B</answer>", Calls((CROP,))),
        # what a call lacks, or may not be, the tool says
        (call('"x"', "null"), Calls((crop("x", None),))),
        ("<answer>B", Illegal("neither a call nor an answer")),
        ("</answer><answer>", Illegal("neither a call nor an answer")),
        ("</tool_call>", Illegal("neither a call nor an answer")),
        ("", Illegal("neither a call nor an answer")),
        (LOOK.replace("</tool_call>", ""), Illegal("a call has no end")),
        (call() + "<tool_call>", Illegal("a call has no end")),
        (call().replace("crop_video", "shell"), Illegal("there is no such tool, only crop_video")),
        # one that can't be read spoils the others
        (call() + "<tool_call>crop_video(1, 2)</tool_call>", Illegal("the call is not valid JSON")),
        (call("[1]"), Illegal("an argument must be a number or a text")),
        ('<tool_call>{"name": "crop_video"}</tool_call>', Illegal("the call has no arguments")),
        ('<tool_call>{"tool": "crop_video", "arguments": {}}</tool_call>', Illegal("the call has no name")),
    ],
)
def test_reading_a_turn(text: str, action: Action) -> None:
    assert parse_turn(text) == action


def test_a_reply_is_frames_without_labels_and_then_its_text() -> None:
    frames = [Frame(index, index / 10, np.zeros((2, 2, 3), np.uint8)) for index in (410, 420)]
    assert reply(frames, "done") == ("<tool_response>\n", *frames, "done\n</tool_response>")
    assert reply((), "Error: no.") == ("<tool_response>\n", "Error: no.\n</tool_response>")
