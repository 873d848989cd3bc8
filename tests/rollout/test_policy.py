import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.rollout.policy import cut_at_stop


@pytest.mark.parametrize(
    ("text", "stops", "read"),
    [
        ("a</x>", ("</x>",), "a</x>"),
        ("a</x>.", ("</x>",), "a</x>"),
        ("a</x>b</x>", ("</x>",), "a</x>"),
        ("a</y>b</x>", ("</x>", "</y>"), "a</y>"),
        ("a</x", ("</x>",), "a</x"),
        ("a</x>.", (), "a</x>."),
        ("", ("</x>",), ""),
    ],
)
def test_a_turn_is_read_up_to_its_first_stop_text(text: str, stops: tuple[str, ...], read: str) -> None:
    assert cut_at_stop(text, stops) == read


@given(st.text("</x>. ", max_size=30))
def test_a_cut_turn_holds_the_stop_text_at_its_end_only(text: str) -> None:
    read = cut_at_stop(text, ("</x>",))
    assert text.startswith(read)
    assert read.find("</x>") in (-1, len(read) - 4)
    assert (read == text) or read.endswith("</x>")
    assert cut_at_stop(read, ("</x>",)) == read
