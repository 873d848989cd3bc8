import sys
from pathlib import Path

import pytest

from agentic_video.launch.reproduce import run
from tests.launch.reproduce.chains import PROGRAM


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages' commands are those of a small program."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setattr(run, "PROGRAM", (sys.executable, str(script)))
