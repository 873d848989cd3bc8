from typing import Any

import numpy as np
import pytest

from agentic_video.types.action import Answer, Calls, Illegal, ToolCall


def test_arguments_hold_plain_numbers() -> None:
    call = ToolCall("zoom", {"box": (np.int64(1), np.float32(0.5)), "note": None})
    assert call.arguments == {"box": [1, 0.5], "note": None}
    assert [type(item) for item in call.arguments["box"]] == [int, float]


def test_plain_arguments_stay_as_they_are() -> None:
    arguments = {"a": [1, (2, 3)], "b": {"c": float("nan")}, 4: "\ud800"}
    assert ToolCall("zoom", arguments).arguments is arguments  # type: ignore[arg-type]


CALL: Any = ToolCall("zoom", {})


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: ToolCall("zoom", {"t": {1, 2}}), r"ToolCall\.arguments\.t "),
        (lambda: ToolCall("zoom", {"t": [object()]}), r"ToolCall\.arguments\.t\[0\] "),
        (lambda: ToolCall("zoom", None), r"ToolCall\.arguments "),
        (lambda: ToolCall("zoom", [1]), r"ToolCall\.arguments "),
        (lambda: ToolCall(None, {}), r"ToolCall\.name "),
        (lambda: Answer(None), r"Answer\.text "),
        (lambda: Illegal(5), r"Illegal\.reason "),
        (lambda: Calls(CALL), r"Calls\.calls .*\(call,\)$"),
        (lambda: Calls((CALL, None)), r"Calls\.calls\[1\] "),
    ],
)
def test_a_mistake_of_a_system_is_named(make: Any, place: str) -> None:
    with pytest.raises(TypeError, match=f"^{place}"):
        make()


def test_calls_are_a_tuple() -> None:
    assert Calls([CALL]).calls == (CALL,)  # type: ignore[arg-type]
    assert Calls(call for call in [CALL, CALL]).calls == (CALL, CALL)  # type: ignore[arg-type]
