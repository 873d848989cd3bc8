import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.types.jsonl import json_line


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"a": 1, "b": [True, None]}, '{"a": 1, "b": [true, null]}\n'),
        ("é 🎬", '"é 🎬"\n'),  # readable, not escaped
        ("one\ntwo\r\x00", '"one\\ntwo\\r\\u0000"\n'),
        ("half a pair: \ud83c", '"half a pair: \\ud83c"\n'),
        ({"\udfff": "\udfff"}, '{"\\udfff": "\\udfff"}\n'),
    ],
)
def test_lines_by_hand(value: Any, line: str) -> None:
    assert json_line(value) == line


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=())), st.lists)
)
def test_whatever_is_written_to_a_utf8_file_is_read_back(value: Any) -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as file:
        file.write(json_line(value))
        file.flush()
        written = raw.getvalue()
    assert written.count(b"\n") == 1 and written.endswith(b"\n")
    assert json.loads(written) == value
