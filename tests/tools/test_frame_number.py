import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.tools.base import ToolError
from agentic_video.tools.frame_number import number_at, parse_lookup, replied_number, reply_text, seconds_of


@pytest.mark.parametrize(
    ("time", "fps", "number"),
    [
        ("00:42", 10.0, 420),
        ("0:42", 10.0, 420),
        ("00:00", 30.0, 0),
        ("01:05", 25.0, 1625),
        ("65:20", 30.0, 117_600),  # 3920 s
        ("00:42", 29.97, 1258),  # 1258.74
        ("00:42", 9.9999999999, 420),  # a rate with a rounding error
        ("99:59", 10.0, 59_990),  # beyond any short video: the caller isn't asked
    ],
)
def test_number_is_the_whole_part_of_seconds_times_rate(time: str, fps: float, number: int) -> None:
    assert number_at({"time": time}, fps) == number


@pytest.mark.parametrize(
    "time", [None, 42, True, "42", "0:4", "1:05:20", "-1:20", "00:42 ", "1234:00", "", "\u0660\u0660:\u0664\u0662"]
)
def test_other_times_are_refused(time: object) -> None:
    with pytest.raises(ToolError, match="MM:SS"):
        number_at({"time": time}, 10.0)


def test_a_request_without_time_is_refused() -> None:
    with pytest.raises(ToolError):
        number_at({}, 10.0)


def test_two_writings_of_one_time() -> None:
    assert seconds_of("01:15") == seconds_of("1:15") == seconds_of("00:75") == 75


def test_what_a_request_is() -> None:
    assert parse_lookup("get frame number at time 00:42") == {"time": "00:42"}
    assert parse_lookup("get frame  number at time\n120:07.") == {"time": "120:07"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "get frame number at time",
        "get frame number at time 42",
        "get frame number at time MM:SS",
        "get frame number at time 1:05:20",
        "get frame number at time -1:20",
        "get frame number at time 00:42 and 00:43",
        "first get frame number at time 00:42",
        "get frame number at time " + "9" * 5000 + ":00",
    ],
)
def test_what_a_request_is_not(text: str) -> None:
    assert parse_lookup(text) is None


@given(st.integers(0, 999), st.integers(0, 99), st.floats(0.1, 240.0))
def test_the_reply_carries_time_and_number(minutes: int, seconds: int, fps: float) -> None:
    time = f"{minutes}:{seconds:02d}"
    number = number_at({"time": time}, fps)
    text = reply_text(time, number)
    assert time in text
    assert text.endswith(f"is: {number}")
    assert replied_number((text,)) == number


def test_no_reply_no_number() -> None:
    assert replied_number(()) is None
    assert replied_number(("frame 420: ",)) is None
