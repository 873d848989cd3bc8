from pathlib import Path

import pytest

from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV, output_folder


def test_outputs_go_where_the_variable_says_else_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert output_folder({"OUTPUT_DIR": "/elsewhere"}) == Path("/elsewhere")
    assert output_folder({"OUTPUT_DIR": "below"}) == tmp_path / "below"
    assert output_folder({}) == output_folder({"OUTPUT_DIR": ""}) == tmp_path / "outputs"


def test_no_variable_is_said_twice() -> None:
    assert not set(COMMON_ENV) & set(LAPTOP_ENV)
