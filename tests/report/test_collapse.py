"""Signs of collapse, on metrics by step that were made for it."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.report.collapse import (
    ACCURACY,
    ALIKE,
    CALLS,
    CUT,
    ENTROPY,
    FORMAT,
    GAP,
    GAP_OF_TURN,
    ILLEGAL,
    LENGTH,
    OLD,
    SIGNS,
    WINDOW,
    CollapseWatch,
    change_of,
    signs_of,
)

Metrics = dict[int, dict[str, float]]
QUIET = {
    CALLS: 0.9,
    ILLEGAL: 0.1,
    ACCURACY: 0.6,
    FORMAT: 0.9,
    ALIKE: 0.3,
    ENTROPY: 0.07,
    LENGTH: 100.0,
    CUT: 0.0,
    GAP: 1e-6,
}


def run(end: Mapping[str, float], start: Mapping[str, float] = QUIET, steps: int = 20) -> Metrics:
    """Steps that lead evenly from one set of metrics to another."""
    both = {**QUIET, **start}, {**QUIET, **start, **end}

    def at(step: int) -> dict[str, float]:
        share = step / (steps - 1)
        return {key: (1 - share) * both[0].get(key, value) + share * value for key, value in both[1].items()}

    return {step + 1: at(step) for step in range(steps)}


def names(metrics: Metrics) -> list[str]:
    return [sign.name for sign in signs_of(metrics)]


def test_a_change_by_hand() -> None:
    change = change_of([1, 1, 1, 1, 1, 9, 9, 3, 3, 3, 3, 3])
    assert change is not None and (change.first, change.latest, change.error, change.rise) == (1, 3, 0, 2)
    # variances 2.5 and 2.5: an error of sqrt(5 / 5) = 1; three of them are more than the difference of 2
    noisy = change_of([1, 2, 3, 4, 5, 3, 4, 5, 6, 7])
    assert noisy is not None and (noisy.error, noisy.rise) == (1.0, 0.0)
    assert change_of([1.0] * (2 * WINDOW - 1)) is None


@pytest.mark.parametrize(
    ("end", "start", "name", "text"),
    [
        ({CALLS: 0.0}, {}, "calls_die_out", "tool calls die out: 0.8"),
        ({CALLS: 2.5}, {}, "calls_without_use", "calls without use: 1.0"),
        ({FORMAT: 0.2}, {}, "format_drifts", "the format drifts: 0.8"),
        ({FORMAT: 0.04}, {FORMAT: 0.04}, "format_drifts", "the format is gone: 0.04"),  # in the first step already
        ({ENTROPY: 9e-4}, {ENTROPY: 9e-4}, "entropy_is_gone", "entropy is gone: 0.0009 at first, 0.0009 now"),
        ({ENTROPY: 2e-3, FORMAT: 0.06}, {ENTROPY: 2e-3, FORMAT: 0.06}, "", ""),
        # both ends of it: all right, all wrong
        (
            {ALIKE: 1.0, ACCURACY: 1.0},
            {ALIKE: 0.8},
            "nothing_to_learn",
            "nothing to learn: in 0.98 of the groups all rollouts earn the same, at an accuracy of 0.96",
        ),
        ({ACCURACY: 0.0}, {ALIKE: 0.9, ACCURACY: 0.0}, "nothing_to_learn", "nothing to learn: in 0.90 of the groups"),
        ({ALIKE: 0.9}, {ALIKE: 0.0}, "", ""),  # of the last steps' mean
        ({ILLEGAL: 1.0}, {}, "format_drifts", "refused calls grow: 0.1"),
        ({ENTROPY: 0.0}, {ENTROPY: 20.0}, "", ""),  # by a tenth only at its end
        ({ENTROPY: 2.0}, {}, "entropy_explodes", "entropy explodes: 0.2"),
        ({LENGTH: 500.0}, {}, "length_grows", "responses grow: 142 tokens at first, 458 now"),
        ({CUT: 0.5}, {}, "length_grows", "episodes run out of tokens: 0.05"),
        ({GAP: 0.04}, {}, "engine_and_actor_differ", "engine and actor move apart: "),
        ({GAP: 0.06}, {GAP: 0.06}, "engine_and_actor_differ", "engine and actor differ: their prob"),
        ({GAP: 0.012}, {GAP: 0.01}, "", ""),  # as bfloat16 has it
    ],
)
def test_each_sign(end: dict[str, float], start: dict[str, float], name: str, text: str) -> None:
    found = signs_of(run(end, start))
    assert [sign.name for sign in found] == [name] * bool(name)
    assert all(sign.text.startswith(text) for sign in found)


def test_entropy_that_is_gone() -> None:
    metrics = run({}) | {step: {**QUIET, ENTROPY: 1e-4} for step in range(15, 21)}
    assert names(metrics) == ["entropy_is_gone"]


def test_calls_that_help_are_no_sign() -> None:
    assert names(run({CALLS: 2.5, ACCURACY: 0.9})) == []


def test_a_gap_that_opens_after_the_first_turn() -> None:
    turns = {f"{GAP_OF_TURN}/1": 1e-3, f"{GAP_OF_TURN}/2": 2e-3, f"{GAP_OF_TURN}/3": 0.03}
    [sign] = signs_of(run({}, turns))
    assert sign.name == "engine_and_actor_differ"
    assert sign.text.startswith("engine and actor differ in later turns: by 3.0e-02 in turn 3, by 1.0e-03 in turn 1")
    assert names(run({}, {f"{GAP_OF_TURN}/{turn}": 1e-6 * turn**3 for turn in (1, 2, 3)})) == []  # rounding


def test_a_gap_of_an_asynchronous_run_may_be_the_age_of_its_weights() -> None:
    [sign] = signs_of(run({GAP: 0.02, OLD: 0.75}, {OLD: 0.75}))
    assert sign.name == "engine_and_actor_differ" and sign.text.startswith("engine and actor move apart: ")
    assert "of weights 0.8 versions old in the mean, and older weights alone make a gap" in sign.text
    [sign] = signs_of(run({GAP: 0.02, OLD: 0.0}, {OLD: 0.0}))
    assert "asynchronous" not in sign.text
    assert names(run({OLD: 3.0}, {OLD: 0.0})) == []


@given(st.dictionaries(st.sampled_from(list(QUIET)), st.floats(0, 3), min_size=8), st.integers(1, 9))
def test_no_sign_before_there_are_enough_steps_or_where_nothing_changes(values: dict[str, float], steps: int) -> None:
    assert names(dict.fromkeys(range(steps), values)) == []
    assert names({step: {**values, GAP: 0.0, FORMAT: 0.9, ALIKE: 0.3, ENTROPY: 0.07} for step in range(30)}) == []


def test_what_is_no_number_is_passed_over() -> None:
    assert names({step: {**QUIET, GAP: float("nan"), ENTROPY: float("inf")} for step in range(20)}) == []


def test_a_watch_says_a_sign_once_and_again_when_it_comes_back() -> None:
    watch = CollapseWatch()
    said: list[tuple[int, str]] = []
    dying = {**QUIET, CALLS: 0.0}
    for step, values in enumerate([*[QUIET] * 10, *[dying] * 8, *[QUIET] * 8, *[dying] * 8], 1):
        metrics, new = watch.step(step, {**values, "timing_s/step": 4.0})
        assert metrics.keys() == ({f"collapse/{name}" for name in SIGNS} if step >= 10 else set())
        said += [(step, text.split(":")[0]) for text in new]
        if step == 18:
            assert metrics["collapse/calls_die_out"] == 1.0 and sum(metrics.values()) == 1.0
        if step == 26:
            assert sum(metrics.values()) == 0.0
    assert [text for _, text in said] == ["tool calls die out"] * 2 and said[0][0] <= 18 < 26 < said[1][0]
