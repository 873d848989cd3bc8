import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.tools.base import ToolError
from agentic_video.tools.choose_frames import chosen_indices, parse_choice


def test_frames_lie_between_the_ends_and_are_cut_to_whole_numbers() -> None:
    # linspace(411, 429, 4) = 411, 417, 423, 429
    assert chosen_indices({"start": 410, "end": 430}, 600, 4) == [411, 417, 423, 429]
    # linspace(1, 99, 8): steps of 14
    assert chosen_indices({"start": 0, "end": 100}, 600, 8) == [1, 15, 29, 43, 57, 71, 85, 99]
    # linspace(1, 20, 8): 1, 3.71, 6.43, 9.14, 11.86, 14.57, 17.29, 20
    assert chosen_indices({"start": 0, "end": 21}, 600, 8) == [1, 3, 6, 9, 11, 14, 17, 20]


def test_an_end_beyond_the_video_is_clipped() -> None:
    # linspace(501, 599, 3): 501, 550, 599
    assert chosen_indices({"start": 500, "end": 999_999_999}, 600, 3) == [501, 550, 599]


def test_one_frame_is_the_first_of_the_stretch() -> None:
    assert chosen_indices({"start": 10, "end": 20}, 600, 1) == [11]


def test_nine_frames_apart_pass_and_eight_do_not() -> None:
    assert chosen_indices({"start": 100, "end": 109}, 600, 8) == [101, 102, 103, 104, 105, 106, 107, 108]
    with pytest.raises(ToolError, match="more than 8"):
        chosen_indices({"start": 100, "end": 108}, 600, 8)


@pytest.mark.parametrize(
    "arguments",
    [
        {"start": 430, "end": 410},
        {"start": 410, "end": 410},
        {"start": 600, "end": 900},
        {"start": 595, "end": 900},  # five frames are left
        {"start": -1, "end": 100},
        {"start": True, "end": 100},
        {"start": 1.5, "end": 100},
        {"start": "1", "end": 100},
        {"start": 1},
        {},
    ],
)
def test_illegal_requests(arguments: dict) -> None:
    with pytest.raises(ToolError):
        chosen_indices(arguments, 600, 8)


def test_what_a_request_is() -> None:
    assert parse_choice("choose frames between 410 and 430") == {"start": 410, "end": 430}
    assert parse_choice("choose  frames\nbetween 0410 and 430 .") == {"start": 410, "end": 430}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "choose frames between 410 and",
        "choose frames between -410 and 430",
        "choose frames between 41.5 and 430",
        "choose frames between 410 and 430.5",
        "choose frames between 410 and 430 and output answer: B",
        "I choose frames between 410 and 430",
        "choose frames between 1 and 1234567890",
        "choose frames between ٤١ and ٤٣",
        "choose frames between 1e3 and 2e3",
    ],
)
def test_what_a_request_is_not(text: str) -> None:
    assert parse_choice(text) is None


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 100_000), st.integers(1, 32))
def test_never_more_frames_than_allowed_and_all_of_them_in_the_video(start: int, end: int, frames: int, n: int) -> None:
    try:
        indices = chosen_indices({"start": start, "end": end}, frames, n)
    except ToolError:
        return
    assert 1 <= len(indices) <= n
    assert start < indices[0] <= indices[-1] < min(end, frames)
    assert indices == sorted(set(indices))
