"""``agentic-video summary``."""

from pathlib import Path

import pytest

from agentic_video.cli import main
from tests.report.test_summary import run_folder


def test_the_summary_of_a_run_is_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_folder(tmp_path, [0.1, 0.2, 0.3])
    assert main(["summary", str(tmp_path)]) == 0
    assert (tmp_path / "summary.md").read_text().startswith("# r, laptop: 3 GRPO steps\n")
    said = capsys.readouterr().out
    assert said.startswith("# r, laptop: 3 GRPO steps\n") and f"summary: {tmp_path / 'summary.md'}" in said
