"""Families of one's own, by an environment variable."""

import pytest

from agentic_video.families.qwen2_vl import Qwen2VL
from agentic_video.families.registry import own_families


def test_families_are_named_as_module_and_class() -> None:
    named = "agentic_video.families.qwen2_vl:Qwen2VL, agentic_video.families.qwen2_vl:Qwen2VL,"
    assert [type(family) for family in own_families(named)] == [Qwen2VL, Qwen2VL]
    assert list(own_families("")) == []


@pytest.mark.parametrize("named", ["missing_module:Family", "agentic_video.families.qwen2_vl:Missing", "pathlib:Path"])
def test_what_is_no_family_ends_the_process_by_name(named: str) -> None:
    with pytest.raises(SystemExit) as caught:
        list(own_families(named))
    said = str(caught.value)
    assert "AGENTIC_VIDEO_FAMILIES" in said and named in said and "\n" not in said
