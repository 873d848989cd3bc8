import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentic_video.report.viewer.safe_json import finite, to_json

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def plain(value: Any) -> Any:
    """What a page reads back: no NaN, no infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


@given(ANYTHING)
def test_nothing_can_close_a_script_and_everything_comes_back(value: Any) -> None:
    text = to_json(value)
    assert text.isascii() and not {"<", ">", "&"} & set(text)
    assert json.loads(text) == plain(value)


def test_a_closing_tag_and_half_a_surrogate() -> None:
    assert to_json("</script>\ud800\u2028") == '"\\u003c/script\\u003e\\ud800\\u2028"'


def test_numbers_of_many_digits() -> None:
    assert finite(10**400) is None and finite(-(10**5_000)) is None
    assert to_json([10**400]) == f"[1{'0' * 400}]"
    assert to_json({"a": [10**5_000, 1], "b": math.nan}) == '{"a":[null,1],"b":null}'


def test_numbers_that_are_none() -> None:
    assert [finite(value) for value in (1, 0.5, math.nan, math.inf, "1", None)] == [1.0, 0.5, None, None, None, None]
