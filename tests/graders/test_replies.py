import json

from hypothesis import given
from hypothesis import strategies as st

from agentic_video.graders.replies import read_array, read_object, spoken


def test_only_a_whole_value_is_read() -> None:
    assert read_object('{"a": 1}') == {"a": 1} and read_object(' ```json\n{"a": 1}\n``` ') == {"a": 1}
    assert read_array("[1]") == [1] and read_array("```\n[1]\n```") == [1]
    for bad in ("", "[1]", "see: {}", "{} bye", "{", '{"a": 1} {"b": 2}'):
        assert read_object(bad) is None
    for bad in ("", "{}", "see: [1]", "[1] bye", "[" * 10_000):
        assert read_array(bad) is None


@given(st.text() | st.recursive(st.none() | st.integers(), lambda one: st.lists(one)).map(json.dumps))
def test_no_reply_breaks_the_readers(reply: str) -> None:
    assert read_object(reply) is None or isinstance(read_object(reply), dict)
    assert read_array(reply) is None or isinstance(read_array(reply), list)


def test_thoughts_are_left_out() -> None:
    assert spoken("<think>yes</think>\n no ") == "no" and spoken(" no") == "no"
