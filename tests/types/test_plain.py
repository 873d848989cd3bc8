from collections import deque
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from agentic_video.types.plain import as_float, as_int, as_json, as_tuple


@pytest.mark.parametrize(
    ("convert", "value", "expected"),
    [
        *((as_int, value, 3) for value in (3, np.int64(3), np.uint8(3), np.array(3))),
        *((as_float, value, 0.5) for value in (0.5, np.float32(0.5), np.float64(0.5), np.array(0.5))),
    ],
)
def test_numbers_become_python_s(convert: Callable[[Any, str], Any], value: Any, expected: float) -> None:
    found = convert(value, "it")
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("convert", "value"),
    [
        *((as_int, value) for value in (None, 3.0, "3", np.float32(3), np.array([1, 2]))),
        *((as_float, value) for value in (None, "0.5", [0.5], np.array([1.0, 2.0]))),
        *((lambda value, name: as_tuple(value, name, "part"), value) for value in ("ab", None, {"a": 1}, {"a"}, 1)),
    ],
)
def test_other_values_are_named(convert: Callable[[Any, str], Any], value: Any) -> None:
    with pytest.raises(TypeError, match=rf"^it .*{type(value).__name__}"):
        convert(value, "it")


@pytest.mark.parametrize("values", [["a", "b"], deque(["a", "b"]), (item for item in "ab"), ("a", "b")])
def test_lists_and_generators_become_tuples(values: Any) -> None:
    assert as_tuple(values, "it", "part") == ("a", "b")


def test_numpy_s_numbers_become_plain_at_any_depth() -> None:
    value = MappingProxyType({"a": (np.int64(1), [np.float32(0.5)]), "b": None, "c": np.bool_(True)})
    found = as_json(value, "it")
    assert found == {"a": [1, [0.5]], "b": None, "c": True} and type(found) is dict
    assert [type(item) for item in (found["a"][0], found["a"][1][0], found["c"])] == [int, float, bool]


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), {1: 2}])
def test_other_data_is_named_by_its_place(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^it\.a\[1\] "):
        as_json({"a": [0, value]}, "it")
