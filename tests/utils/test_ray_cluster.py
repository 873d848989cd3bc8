from pathlib import Path

import pytest

from agentic_video.utils import ray_cluster
from agentic_video.utils.ray_cluster import auth_mode, own_token, shell_problem, unanswered


def test_a_token_is_shown_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert auth_mode({}) == {}
    assert auth_mode({"RAY_AUTH_TOKEN": "t"}) == {"RAY_AUTH_MODE": "token"}
    assert auth_mode({"RAY_AUTH_TOKEN": "t", "RAY_AUTH_MODE": "disabled"}) == {}
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("t")
    assert auth_mode({}) == {"RAY_AUTH_MODE": "token"}


def test_an_address_where_nothing_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert unanswered("127.0.0.1:1").startswith("no Ray cluster answers at 127.0.0.1:1: ")
    assert "127.0.0.1:1" in unanswered("ray://127.0.0.1:1")
    assert unanswered("http://127.0.0.1:1/") == ""  # which only Ray can tell
    note = tmp_path / "ray_current_cluster"
    monkeypatch.setattr(ray_cluster, "CURRENT_CLUSTER", note)
    monkeypatch.setattr(ray_cluster, "_runs_here", lambda: False)
    assert "RAY_ADDRESS=auto" in unanswered("auto")
    monkeypatch.setattr(ray_cluster, "_runs_here", lambda: True)
    assert unanswered("auto") == ""
    note.write_text("127.0.0.1:1\n")  # left by one that was killed
    assert "127.0.0.1:1" in unanswered("auto")


def test_a_cluster_of_a_command_s_own_has_a_token_that_nothing_else_knows() -> None:
    first, second = own_token({}), own_token({})
    assert first["RAY_AUTH_MODE"] == "token" and first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]
    for named in ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_TOKEN": "t"}, {"RAY_AUTH_TOKEN_PATH": "/t"}):
        assert own_token(named) == {}


@pytest.mark.parametrize(("path", "plain"), [("/tmp/a-b_c.d,e=1@2:3+4%", True), ("/a b", False), ("/ü", False)])
def test_paths_that_ray_has_a_shell_start(path: str, plain: bool) -> None:
    assert bool(shell_problem(path)) != plain
