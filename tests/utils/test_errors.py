import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentic_video.utils.errors import PluginTypeError, described, return_type_error
from agentic_video.video.errors import VideoError


def test_what_must_be_returned_is_said_and_can_be_sent_to_another_process() -> None:
    error = return_type_error("Moments.parse", "Calls, Answer or Illegal", "Calls")
    assert str(error) == "Moments.parse must return Calls, Answer or Illegal, got str"
    sent = pickle.loads(pickle.dumps(error))
    assert type(sent) is PluginTypeError and str(sent) == str(error)


MODULE = """
import json
from agentic_video.types import Observation

def divide():
    return 1 / 0

def bare():
    return Observation("frame")

def read():
    json.loads("{")
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("divide", "ZeroDivisionError: division by zero (moments.py line 6)"),
        # raised by ours, and by Python's own, but called from there
        ("bare", "(part,) (moments.py line 9)"),
        ("read", "line 1 column 2 (char 1) (moments.py line 12)"),
    ],
)
def test_where_in_a_plugin_something_was_raised(name: str, said: str, tmp_path: Path) -> None:
    module: dict[str, Any] = {}
    exec(compile(MODULE, str(tmp_path / "moments.py"), "exec"), module)
    assert _raised(module[name]).endswith(said)


def test_what_says_itself_what_is_wrong_has_no_line() -> None:
    def unread() -> None:
        raise VideoError("a.mp4", "missing", "no such file")

    def careless() -> None:
        raise return_type_error("Moments.parse", "Calls", 1)

    assert "line" not in _raised(unread) and _raised(unread).startswith("VideoError: ")
    assert _raised(careless) == "PluginTypeError: Moments.parse must return Calls, got int"


def test_an_error_that_was_never_raised_has_no_line() -> None:
    assert described(ValueError("so")) == "ValueError: so"


def _raised(function: Callable[[], Any]) -> str:
    try:
        function()
    except Exception as error:
        # the frames of this file are not the plugin's
        return described(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
    raise AssertionError("nothing was raised")
