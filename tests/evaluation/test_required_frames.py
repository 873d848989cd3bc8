"""The minimum required frame-set, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.evaluation.required_frames import MOST, RequiredFrames, measure, required_frames
from agentic_video.types.record import Record
from tests.evaluation.records import record


def from_on(count: int) -> dict[int, bool]:
    """Right with so many frames and more."""
    return {frames: frames >= count for frames in range(MOST + 1)}


@given(st.integers(0, MOST))
def test_who_is_right_from_a_number_of_frames_on_needs_that_number(count: int) -> None:
    assert required_frames(from_on(count)) == count


def test_who_is_never_right_has_none() -> None:
    assert required_frames(from_on(MOST + 1)) is None
    assert required_frames({**from_on(3), MOST: False}) is None, "right with 3 to 15 frames, not with 16"
    assert required_frames({**from_on(3), 0: True, MOST: False}) == 0


@pytest.mark.parametrize(
    ("right", "needed"),
    [
        # 8 no, so 9..16: 12 no, 13..16: 14 yes, 13..14: two are left, 13 no
        ({2, 14, 16}, 14),
        # 8 yes, 4 no, 5..8: 6 no, 7..8: 7 no
        ({1, 8, 16}, 8),
        # 8 yes, 4 yes, 2 no, 3..4: 3 yes
        ({3, 4, 8, 16}, 3),
        # 8 yes, 4 yes, 2 yes, 1..2: 1 yes
        ({1, 2, 4, 8, 16}, 1),
        # 8, 12, 14 no, 15..16: 15 no
        ({16}, 16),
    ],
)
def test_halving_finds_one_number_of_those_that_do(right: set[int], needed: int) -> None:
    assert required_frames({frames: frames in right for frames in range(MOST + 1)}) == needed


def graded(name: str, video: str, acc: float | None) -> Record:
    return record(name, video=video, **({} if acc is None else {"acc": acc}))


def test_figures_by_hand() -> None:
    """Four questions that count: one needs no frame, one is never right, the others need 4 and 9."""
    needs = {"a": 0, "b": MOST + 1, "c": 4, "d": 9}
    played = {
        count: [
            *[graded(name, f"{name}.mp4", float(count >= least)) for name, least in needs.items()],
            graded("half", "h.mp4", 0.5),  # not right
            graded("open", "o.mp4", None if count == 7 else 1.0),  # not graded with seven
        ]
        for count in range(MOST + 1)
    }
    # deviations of 2.5 from 6.5 in two videos: the root of 2 / 1 * 12.5, over 2
    wanted = RequiredFrames(5, 0.2, 0.4, 6.5, pytest.approx(2.5), 6.5)  # type: ignore[arg-type]
    assert measure(played) == wanted
    assert all(number in str(measure(played)) for number in ("6.50", "2.50", "20.0%", "40.0%"))


def test_every_number_of_frames_must_have_been_played() -> None:
    played = {count: [graded("a", "v", 0.0)] for count in range(MOST + 1)}
    assert measure({count: records for count, records in played.items() if count != 5}) is None
    assert measure({**played, 5: []}) is None
    never = measure({**played, 64: []})
    assert never == RequiredFrames(1, 0.0, 1.0, None, None, None)
