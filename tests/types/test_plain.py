from collections import deque
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from agentic_video.types.plain import as_float, as_int, as_tuple, plain


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_whole_numbers_of_any_kind_become_python_s(value: Any) -> None:
    assert (as_int(value, "it"), type(as_int(value, "it"))) == (3, int)


@pytest.mark.parametrize("value", [None, 3.0, "3", np.float32(3), np.array([1, 2])])
def test_what_is_no_whole_number_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=f"^it must be a whole number, got {type(value).__name__}$"):
        as_int(value, "it")


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.float64(0.5), np.array(0.5)])
def test_numbers_of_any_kind_become_python_s(value: Any) -> None:
    assert (as_float(value, "it"), type(as_float(value, "it"))) == (0.5, float)


@pytest.mark.parametrize("value", [None, "0.5", [0.5], np.array([1.0, 2.0])])
def test_what_is_no_number_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=f"^it must be a number, got {type(value).__name__}$"):
        as_float(value, "it")


@pytest.mark.parametrize("values", [["a", "b"], deque(["a", "b"]), (item for item in "ab"), ("a", "b")])
def test_lists_and_generators_become_tuples(values: Any) -> None:
    assert as_tuple(values, "it", "part") == ("a", "b")


@pytest.mark.parametrize("values", ["ab", None, {"a": 1}, {"a"}, np.zeros(2), 1])
def test_what_is_no_tuple_is_named(values: Any) -> None:
    with pytest.raises(TypeError, match=rf"^it must be a tuple, got {type(values).__name__}; .*comma: \(part,\)$"):
        as_tuple(values, "it", "part")


def test_numpy_s_numbers_become_plain_wherever_they_are() -> None:
    value = MappingProxyType({"a": (np.int64(1), [np.float32(0.5)]), np.int64(2): None, "c": np.bool_(True)})
    found = plain(value, "it")
    assert found == {"a": (1, [0.5]), 2: None, "c": True} and type(found) is dict
    assert [type(item) for item in (found["a"][0], found["a"][1][0], found["c"])] == [int, float, bool]


@pytest.mark.parametrize("value", [{1, 2}, b"x", np.zeros(2), object()])
def test_what_is_no_plain_data_is_said_with_its_place(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^it\.a\[1\] is no plain data: "):
        plain({"a": [0, value]}, "it")
