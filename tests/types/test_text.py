import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.types.text import as_unicode, is_unicode, printable, short


def test_halves_of_pairs_are_seen() -> None:
    assert is_unicode("") and is_unicode("caf\u00e9 \U0001f3ac")
    assert not is_unicode("\ud83c\udfac") and not is_unicode("a\udc80")


@pytest.mark.parametrize(
    ("text", "meant"),
    [("a\ud800b", "a\ufffdb"), ("\ud83d\ude00", "\N{GRINNING FACE}"), ("\udc00", "\ufffd"), ("\u00e9", "\u00e9")],
)
def test_halves_of_pairs_become_a_character_or_its_replacement(text: str, meant: str) -> None:
    assert as_unicode(text) == meant and is_unicode(meant)


def test_a_terminal_obeys_nothing() -> None:
    assert printable("a \x1b[31mred\x07\u202e\ud800\r\n\u7ea2") == "a \\x1b[31mred\\x07\\u202e\\ud800\\r\n\u7ea2"


@given(st.text())
def test_what_is_printable_stays(text: str) -> None:
    shown = printable(text)
    assert all(item.isprintable() or item == "\n" for item in shown)
    assert shown == text or any(not item.isprintable() for item in text)


def test_a_long_value_is_cut() -> None:
    assert short([1, "a"]) == "[1, 'a']" and short("x" * 58) == f"'{'x' * 58}'"
    assert short("x" * 59) == f"'{'x' * 59}..."
