import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.systems.framemind.ladder import FrameSampling, ladder_sampling

LOW, HIGH = FrameSampling(64, 224, 224), FrameSampling(32, 448, 448)


def test_the_eight_views_of_the_paper() -> None:
    # Equations 2 and 3 with r = 0, 1/7 .. 1: 64 - 32 r frames is 64, 59.43, 54.86, 50.29, 45.71, 41.14, 36.57, 32;
    # 224 + 224 r pixels is 224, 256, 288, 320, 352, 384, 416, 448, in units of 28: 8, 9.14, 10.29, 11.43, 12.57,
    # 13.71, 14.86, 16
    views = [ladder_sampling(LOW, HIGH, index, 8, 28) for index in range(8)]
    assert [view.frames for view in views] == [64, 59, 55, 50, 46, 41, 37, 32]
    assert [view.height for view in views] == [224, 252, 280, 308, 364, 392, 420, 448]
    assert [view.width for view in views] == [view.height for view in views]


def test_sides_are_the_equations_own_where_no_multiple_is_asked_for() -> None:
    sides = [ladder_sampling(LOW, HIGH, index, 8, 1).height for index in range(8)]
    assert sides == [224, 256, 288, 320, 352, 384, 416, 448]


def test_a_group_of_three_has_the_middle() -> None:
    # r = 1/2: 48 frames of 336 = 12 * 28 pixels
    assert ladder_sampling(LOW, HIGH, 1, 3, 28) == FrameSampling(48, 336, 336)


def test_height_and_width_climb_apart() -> None:
    assert ladder_sampling(FrameSampling(10, 28, 56), FrameSampling(4, 84, 168), 1, 3, 28) == FrameSampling(7, 56, 112)


def test_a_rollout_beyond_the_group_begins_the_ladder_again() -> None:
    assert ladder_sampling(LOW, HIGH, 9, 8, 28) == ladder_sampling(LOW, HIGH, 1, 8, 28)


def test_sides_are_at_least_one_factor() -> None:
    assert ladder_sampling(FrameSampling(2, 5, 5), FrameSampling(2, 5, 5), 0, 1, 28) == FrameSampling(2, 28, 28)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        FrameSampling(0, 28, 28)
    with pytest.raises(ValueError, match="at least 1"):
        ladder_sampling(LOW, HIGH, 0, 0, 28)


@given(st.integers(2, 64), st.sampled_from([1, 14, 28, 32]))
def test_the_ladder_only_climbs(group: int, factor: int) -> None:
    views = [ladder_sampling(LOW, HIGH, index, group, factor) for index in range(group)]
    assert [view.frames for view in views] == sorted((view.frames for view in views), reverse=True)
    assert [view.height for view in views] == sorted(view.height for view in views)
    assert (views[0].frames, views[-1].frames) == (64, 32)
    assert all(view.height % factor == 0 for view in views)
