import os
from pathlib import Path

import pytest

from agentic_video.utils.secrets import SECRETS_FILE, load_secrets, written

KEYS = {"A_KEY": "plain", "B_KEY": "quo\"te's and $x", "C_KEY": "a=b#c"}


def test_keys_come_back_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    file.write_text(written(KEYS))
    monkeypatch.setenv(SECRETS_FILE, str(file))
    monkeypatch.setenv("A_KEY", "the node's own")
    for name in ("B_KEY", "C_KEY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    load_secrets()
    assert [os.environ[name] for name in KEYS] == ["the node's own", KEYS["B_KEY"], KEYS["C_KEY"]]


def test_a_file_of_one_s_own_is_written_as_one_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    file.write_text("# mine\n\nexport X_KEY='a b'\nY_KEY=c\nno line\n")
    monkeypatch.setenv(SECRETS_FILE, str(file))
    for name in ("X_KEY", "Y_KEY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    load_secrets()
    assert (os.environ["X_KEY"], os.environ["Y_KEY"]) == ("a b", "c")


def test_a_file_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(SECRETS_FILE, raising=False)
    load_secrets()
    assert capsys.readouterr().err == ""
    monkeypatch.setenv(SECRETS_FILE, "/no/such")
    load_secrets()
    assert "/no/such: No such file or directory; its keys are missing here" in capsys.readouterr().err
