"""A closer look at a segment: how its call is read and repaired, what is refused, how many frames it has."""

from typing import Any

import pytest

from agentic_video.tools.base import ToolError
from agentic_video.tools.ground_segment import (
    GroundRequest,
    check_grounding,
    frame_count,
    json_errors,
    read_grounding,
)

GOOD = '{"temporal_segment": [1, 3], "sampling_strategy": "fine"}'
READ = {"temporal_segment": [1, 3], "sampling_strategy": "fine"}


@pytest.mark.parametrize(
    "body",
    [GOOD, f"\n {GOOD} \n", f"```json\n{GOOD}\n```", GOOD.replace('"', "'"), f"here: {GOOD}"],
)
def test_near_json_is_repaired(body: str) -> None:
    assert read_grounding(body) == READ


@pytest.mark.parametrize(
    "body",
    ["", "1", "[1, 3]", "{", "}{", GOOD + GOOD, GOOD[:-1], "{'a': it's}", "{" * 5000, f"{{{' ' * 3000}}}"],
)
def test_what_stays_unreadable(body: str) -> None:
    with pytest.raises(ToolError):
        read_grounding(body)


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        (GOOD, 0),
        (GOOD.replace("fine", "sharp"), 1),
        (GOOD.replace('"fine"', "2"), 1),
        (GOOD.replace("[1, 3]", "[1]"), 1),
        (GOOD.replace("[1, 3]", '"1-3"'), 1),
        ('{"temporal_segment": [1, 3]}', 1),
        ('{"sampling_strategy": "fine"}', 1),
        ("{}", 2),
        ('{"temporal_segment": 1, "sampling_strategy": "best"}', 2),
        (GOOD.replace('"', "'"), 1),  # repaired when it is carried out, an error all the same
        ("", 1),
        ("3", 1),
        (GOOD.replace("[1, 3]", '["a", -9]'), 0),  # what the numbers say is not looked at
    ],
)
def test_errors_of_a_call_s_json(body: str, errors: int) -> None:
    assert json_errors(body) == errors


@pytest.mark.parametrize(
    ("segment", "clamped"),
    [([1, 3], (1, 3)), ([-5, 3.5], (0, 3.5)), ([50, 99], (50, 60)), ([59, 60], (59, 60)), ([-1e308, 1e308], (0, 60))],
)
def test_a_segment_is_clamped_to_the_video(segment: list[float], clamped: tuple[float, float]) -> None:
    request = check_grounding({"temporal_segment": segment, "sampling_strategy": "coarse"}, 60.0)
    assert request == GroundRequest(*clamped, "coarse")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sampling_strategy": "fine"}, "temporal_segment is missing"),
        ({"temporal_segment": [1, 3]}, "sampling_strategy is missing"),
        ({**READ, "temporal_segment": 7}, "must be"),
        ({**READ, "temporal_segment": [1, 3, 5]}, "must be"),
        ({**READ, "temporal_segment": ["1", 3]}, "start must be a number"),
        ({**READ, "temporal_segment": [1, True]}, "end must be a number"),
        ({**READ, "sampling_strategy": "FINE"}, '"coarse", "medium", "fine"'),
        ({**READ, "sampling_strategy": ["fine"]}, '"coarse", "medium", "fine"'),
        ({**READ, "temporal_segment": [3, 3.9]}, "must last 1 s"),
        ({**READ, "temporal_segment": [3, 1]}, "must last 1 s"),
        ({**READ, "temporal_segment": [59.5, 70]}, "which lasts 60.00 seconds"),  # clamped first: half a second is left
        ({**READ, "temporal_segment": [80, 90]}, "must last 1 s"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolError, match=message):
        check_grounding(arguments, 60.0)


@pytest.mark.parametrize(
    ("seconds", "count"), [(1.0, 4), (2.0, 4), (2.5, 4), (3.0, 6), (3.4, 6), (100.0, 200), (384.0, 768), (5000.0, 768)]
)
def test_two_frames_a_second_within_limits_and_even(seconds: float, count: int) -> None:
    assert frame_count(seconds, 2.0, 4, 768) == count


def test_a_count_is_never_less_than_a_pair() -> None:
    assert [frame_count(9.0, 2.0, 1, most) for most in (1, 2, 3, 5)] == [2, 2, 2, 4]
