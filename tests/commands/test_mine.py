from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.commands import mine
from agentic_video.synthesis.mine import MineOptions
from tests.commands.conftest import Ask


def test_what_is_asked_for(ask: Ask) -> None:
    assert ask(mine, "mine", "a", "b", "--out", "o.jsonl") == MineOptions((Path("a"), Path("b")), Path("o.jsonl"))
    options = ask(mine, "mine", "a", "--out", "o.jsonl", "--below", "0.25", "--from-step", "7", "--limit", "2")
    assert (options.below, options.from_step, options.limit) == (0.25, 7, 2)


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mine", str(tmp_path / "none"), "--out", str(tmp_path / "o.jsonl")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
