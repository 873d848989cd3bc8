"""Times as they are written."""

import pytest

from agentic_video.utils.units import clock, duration


def test_clocks() -> None:
    assert [clock(seconds) for seconds in (0, 9.99, 61, 3_599, 3_600, 36_061.5)] == [
        *("00:00", "00:09", "01:01", "59:59", "60:00", "601:01")
    ]


@pytest.mark.parametrize(
    ("seconds", "said"), [(4.4, "4 s"), (99, "99 s"), (720, "12 min"), (12_000, "3 h 20 min"), (5_970, "1 h 40 min")]
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said
