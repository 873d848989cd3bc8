"""The measure of growth tells linear functions from quadratic ones."""

import re

import pytest

from tests.growth import assert_linear, cpu_s


def test_linear_functions_pass() -> None:
    # functions that compute: one that only walks over memory slows down where the input leaves a cache
    assert_linear(lambda text: sum(map(ord, text)), "<think>" * 2_000, "<think>" * 16_000)
    assert_linear(lambda count: sum(range(count)), 10_000, 80_000, growth=8.0)
    assert_linear(sorted, list(range(5_000)), list(range(40_000)))


def test_fixed_costs_do_not_count_against_a_function() -> None:
    assert_linear(lambda text: sum(range(20_000)), "x", "x" * 8)


@pytest.mark.parametrize(
    "function",
    [
        lambda text: re.findall(r"<a>.*?</a>", text, re.DOTALL),  # each opening tag is searched to the end of the text
        lambda text: [text.find("</a>", place) for place in range(0, len(text), 3)],
        lambda text: [text[place:] for place in range(0, len(text), 3)],
    ],
    ids=["lazy pattern", "find without end", "slices"],
)
def test_quadratic_functions_fail(function) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AssertionError, match="times as large took"):
        assert_linear(function, "<a>" * 700, "<a>" * 5_600)


def test_inputs_of_nearly_one_size_are_refused() -> None:
    with pytest.raises(AssertionError, match="don't tell"):
        assert_linear(len, "xx", "xxxx")


def test_time_is_of_one_call() -> None:
    assert cpu_s(lambda count: sum(range(count)), 100_000) > 10 * cpu_s(lambda count: sum(range(count)), 1_000)
