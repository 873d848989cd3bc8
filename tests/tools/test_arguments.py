import math
from typing import Any

import pytest

from agentic_video.tools.arguments import json_float, moment, number, read_call, read_json_object, read_json_values
from agentic_video.tools.base import ToolError
from agentic_video.tools.frame_select import read_calls
from agentic_video.types.action import ToolCall


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the call is not valid JSON"),
        ("{} {}", "the call is not valid JSON"),
        ('{"a": ' + "[" * 600 + "]" * 600 + "}", "the call is nested too deeply"),
        ("[1]", "the call is not a JSON object"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": -Infinity}', "-Infinity is not a number"),
        ('{"a": 1e999}', "a number is too large"),
        ('{"a": [[[[]]]]}', "the call is nested too deeply"),
        # the length counts before the content, the content before the depth
        ("x" * 2_001, "the call is longer than 2000 characters"),
        ('{"a": [[[[NaN]]]]}', "NaN is not a number"),
    ],
)
def test_what_is_wrong_with_a_call_is_said(text: str, message: str) -> None:
    with pytest.raises(ToolError) as caught:
        read_json_object(text)
    assert str(caught.value) == message


def test_a_tool_can_set_its_own_limits() -> None:
    assert read_json_object('{"a": [1]}', max_chars=10, max_depth=2) == {"a": [1]}
    with pytest.raises(ToolError, match="longer than 9"):
        read_json_object('{"a": [1]}', max_chars=9)
    with pytest.raises(ToolError, match="deeply"):
        read_json_object('{"a": [1]}', max_depth=1)
    with pytest.raises(ToolError, match="longer than 3"):
        list(read_json_values("[1] ", max_chars=3))


def test_values_one_after_another() -> None:
    assert list(read_json_values(' {"a": 1}, [2]\n3 ,, "x" ')) == [{"a": 1}, [2], 3, "x"]
    assert list(read_json_values(" ")) == []


def test_values_are_had_before_the_next_one_is_parsed() -> None:
    values = read_json_values('{"a": 1} {')
    assert next(values) == {"a": 1}
    with pytest.raises(ToolError, match="not valid JSON"):
        next(values)


def test_a_number_beyond_a_float_is_refused_where_json_is_read() -> None:
    assert json_float("1.5e3") == 1500.0
    for text in ("1e999", "-1e999"):
        with pytest.raises(ToolError, match="too large"):
            json_float(text)
    with pytest.raises(ToolError, match="too large"):
        read_json_object('{"fps": 1e999}')
    with pytest.raises(ToolError, match="too large"):
        read_calls('{"tool": "frame_select", "arguments": {"nframes": 1e999}}')


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "t must be a number"),
        ("1", "t must be a number"),
        (True, "t must be a number"),
        ([1], "t must be a number"),
        (10**400, "t is too large"),
        (math.nan, "t must be finite"),
        (-math.inf, "t must be finite"),
    ],
)
def test_anything_else_is_no_number(value: Any, message: str) -> None:
    for read in (lambda: number(value, "t"), lambda: moment(value, "t", 60.0)):
        with pytest.raises(ToolError) as caught:
            read()
        assert str(caught.value) == message


def test_a_moment_lies_within_the_video() -> None:
    assert [moment(value, "t", 60.0) for value in (0, 60, 59.99)] == [0.0, 60.0, 59.99]
    for value in (-0.001, 60.001, 1e308):
        with pytest.raises(ToolError) as caught:
            moment(value, "t", 60.0)
        assert str(caught.value) == "t lies outside the video, which lasts 60.00 seconds"


def test_arguments_in_a_text_of_their_own() -> None:
    body = '{"name": "x", "arguments": "{\\"a\\": 1.5}"}'
    assert read_call(body, nested_text=True) == ToolCall("x", {"a": 1.5})
    with pytest.raises(ToolError, match="the call has no arguments"):
        read_call(body)
    deep = '{"name": "x", "arguments": "{\\"a\\": [[[1]]]}"}'
    for most, reason in ((3, "the call is nested too deeply"), (4, "an argument must be a number or a text")):
        with pytest.raises(ToolError, match=reason):
            read_call(deep, most, nested_text=True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{name: 1}", "the call is not valid JSON"),
        ('{"arguments": {}}', "the call has no name"),
        ('{"name": "x"}', "the call has no arguments"),
        ('{"name": "x", "arguments": {"a": {}}}', "an argument must be a number or a text"),
        (r'{"name": "\udfff", "arguments": {}}', "the call holds what is no text"),
    ],
)
def test_what_is_said_about_an_unreadable_call(body: str, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        read_call(body)
