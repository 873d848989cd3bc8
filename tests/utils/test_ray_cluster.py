from pathlib import Path

import pytest

from agentic_video.utils.ray_cluster import auth_mode, unanswered


def test_a_token_is_shown_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert auth_mode({}) == {}
    assert auth_mode({"RAY_AUTH_TOKEN": "t"}) == {"RAY_AUTH_MODE": "token"}
    assert auth_mode({"RAY_AUTH_TOKEN": "t", "RAY_AUTH_MODE": "disabled"}) == {}
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("t")
    assert auth_mode({}) == {"RAY_AUTH_MODE": "token"}


def test_an_address_where_nothing_listens() -> None:
    assert unanswered("127.0.0.1:1").startswith("no Ray cluster answers at 127.0.0.1:1: ")
    assert unanswered("auto") == unanswered("ray://127.0.0.1:1") == ""  # which only Ray can tell
