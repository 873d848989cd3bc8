from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.tools.base import ToolError
from agentic_video.tools.clip_sample import ClipRequest, check_clip, read_prompt


def asked(start: Any = 0, end: Any = 600, prompt: Any = "a red umbrella") -> dict[str, Any]:
    return {"start_frame": start, "end_frame": end, "prompt": prompt}


def check(arguments: dict[str, Any], num_frames: int = 600, candidates: int = 128) -> ClipRequest:
    return check_clip(arguments, num_frames, candidates=candidates, max_prompt_chars=20)


def test_candidates_are_spread_over_the_asked_range() -> None:
    # 5 of the frames 100 to 299: steps of 199 / 4 = 49.75, rounded
    assert check(asked(100, 300), candidates=5) == ClipRequest("a red umbrella", (100, 150, 200, 249, 299))


def test_a_search_of_the_whole_video_has_the_same_candidates_however_it_is_written() -> None:
    whole = check(asked(0, 600)).candidates
    assert check(asked(0, 10**12)).candidates == whole
    assert (len(whole), whole[0], whole[-1]) == (128, 0, 599)


def test_a_short_range_is_compared_whole_even_below_the_frames_shown() -> None:
    assert check(asked(598, 700)).candidates == (598, 599)


def test_white_space_around_the_prompt_is_not_part_of_it() -> None:
    assert check(asked(prompt=" a cat\n")).prompt == "a cat"


@pytest.mark.parametrize("prompt", [None, 7, True, ["red"], {"red": 1}, "", " \n\t", "\ud800", "red \udfff"])
def test_what_is_no_text_is_refused(prompt: Any) -> None:
    with pytest.raises(ToolError, match="prompt must be"):
        read_prompt({"prompt": prompt})


def test_the_prompts_length_is_capped() -> None:
    assert check(asked(prompt="x" * 20 + " " * 50)).prompt == "x" * 20
    with pytest.raises(ToolError, match="at most 20 characters"):
        check(asked(prompt="x" * 21))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (asked(start=600, end=700), "600 frames"),
        (asked(start=-1), "600 frames"),
        (asked(start=5, end=5), "smaller"),
        (asked(end="600"), "end_frame must be an integer"),
        ({"start_frame": 0, "end_frame": 9}, "prompt must be"),
    ],
)
def test_illegal_requests_say_why(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        check(arguments)


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)


@given(
    st.dictionaries(st.sampled_from(["start_frame", "end_frame", "prompt"]), values, min_size=3),
    st.integers(1, 10**6),
)
def test_whatever_is_asked_only_frames_of_the_video_are_compared(arguments: dict[str, Any], total: int) -> None:
    try:
        request = check(arguments, total)
    except ToolError:
        return
    assert 1 <= len(request.candidates) <= 128
    assert list(request.candidates) == sorted(set(request.candidates))
    assert request.candidates[0] >= 0
    assert request.candidates[-1] < total
    assert 1 <= len(request.prompt) <= 20
