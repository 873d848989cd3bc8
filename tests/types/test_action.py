from typing import Any

import numpy as np
import pytest

from agentic_video.types.action import Answer, Calls, Illegal, ToolCall


def test_arguments_hold_plain_numbers() -> None:
    call = ToolCall("zoom", {"box": (np.int64(1), np.float32(0.5)), "note": None})
    assert call.arguments == {"box": (1, 0.5), "note": None}
    assert [type(item) for item in call.arguments["box"]] == [int, float]


def test_plain_arguments_stay_as_they_are() -> None:
    arguments = {"a": [1, (2, 3)], "b": {"c": float("nan")}, 4: "\ud800"}
    assert ToolCall("zoom", arguments).arguments is arguments  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"t": {1, 2}}, r"ToolCall\.arguments\.t is no plain data: \{1, 2\}"),
        ({"t": [np.zeros(2)]}, r"ToolCall\.arguments\.t\[0\] is no plain data: array"),
        (None, r"ToolCall\.arguments must be a dictionary, got NoneType"),
        ([1], r"ToolCall\.arguments must be a dictionary, got list"),
    ],
)
def test_arguments_that_no_record_holds_are_named(arguments: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        ToolCall("zoom", arguments)


@pytest.mark.parametrize(
    ("make", "field"),
    [(Answer, r"Answer\.text"), (Illegal, r"Illegal\.reason"), (lambda name: ToolCall(name, {}), r"ToolCall\.name")],
)
def test_what_must_be_a_text_is_named(make: Any, field: str) -> None:
    for value in (None, 5):
        with pytest.raises(TypeError, match=f"^{field} must be a text, got {type(value).__name__}$"):
            make(value)


def test_calls_are_a_tuple_of_calls() -> None:
    call: Any = ToolCall("zoom", {})
    assert Calls([call]).calls == (call,)  # type: ignore[arg-type]
    assert Calls(one for one in [call, call]).calls == (call, call)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^Calls\.calls must be a tuple, got ToolCall; .*\(call,\)$"):
        Calls(call)
    with pytest.raises(TypeError, match=r"^Calls\.calls\[1\] must be a ToolCall, got NoneType$"):
        Calls((call, None))  # type: ignore[arg-type]
