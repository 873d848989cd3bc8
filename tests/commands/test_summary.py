"""``agentic-video summary``."""

from pathlib import Path

import pytest

from agentic_video.cli import main
from tests.report import test_losses
from tests.report.test_summary import run_folder


def test_the_summary_of_a_run_is_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_folder(tmp_path, [0.1, 0.2, 0.3])
    assert main(["summary", str(tmp_path)]) == 0
    assert (tmp_path / "summary.md").read_text().startswith("# r, laptop: 3 GRPO steps\n")
    said = capsys.readouterr().out
    assert said.startswith("# r, laptop: 3 GRPO steps\n") and f"summary: {tmp_path / 'summary.md'}" in said


def test_the_other_stages_have_theirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test_losses.run_folder(tmp_path, [{"train/loss": 2.0}, {"train/loss": 1.0}])
    assert main(["summary", str(tmp_path)]) == 0
    assert "| loss | 2.0000 (step 1) | 1.0000 (step 2) |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"), [(None, "no run there (run.json)"), ("{", "can't be read"), ("[]", "isn't a run's record")]
)
def test_a_folder_that_is_no_run_s_is_named_in_a_line(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    assert main(["summary", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {tmp_path}") and said in err and err.count("\n") == 1
