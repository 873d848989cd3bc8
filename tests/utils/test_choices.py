import pytest

from agentic_video.utils.choices import check_choice


def test_a_value_beyond_the_choices_is_named_with_its_key() -> None:
    check_choice("mode", "add", ("add", "replace"))
    with pytest.raises(ValueError, match=r"^mode must be one of \('add', 'replace'\), got 'ad'$"):
        check_choice("mode", "ad", ("add", "replace"))
