import sys
from pathlib import Path

import pytest

from agentic_video.toyworld.build.write_world import write_world
from agentic_video.toyworld.world import WorldRecipe
from agentic_video.utils.errors import SetupError


def write(folder: Path, train: int = 1) -> None:
    write_world(folder, train=train, heldout=1, seed=0, recipe=WorldRecipe())


def test_what_the_machine_refuses_is_said_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "videos").touch()  # in the way of the folder
    with pytest.raises(SetupError, match=r"^the world's videos could not be written: \[Errno 20\] .*/videos/train'$"):
        write(tmp_path)
    with pytest.raises(SetupError, match=r"could not be written: split 'train' has room for 500000 scenes"):
        write(tmp_path / "other", train=10**6)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("ends", "why"),
    [("echo Trace >&2; echo 'KeyError: 7' >&2; exit 1", "KeyError: 7"), ("kill -9 $$", "status -9")],
)
def test_what_nobody_expected_is_shown_in_full(
    ends: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{ends}\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(SetupError, match=f"could not be written: {why}$"):
        write(tmp_path)
    assert capfd.readouterr().err == ("Trace\nKeyError: 7\n" if "Trace" in ends else "")
