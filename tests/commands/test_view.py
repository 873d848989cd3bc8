from pathlib import Path

import pytest

from agentic_video.cli import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--serve", "--out", "x.html"), "--out writes a report and --serve serves one"),
        ((), "is neither a folder nor a file"),
        (("--videos", "/nope"), "--videos /nope: no such folder"),
        (("--videos", __file__), f"--videos {__file__}: a file; name a folder"),
    ],
)
def test_what_cannot_be_viewed(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(tmp_path / "none"), *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and message in said and said.count("\n") == 1
