import os
from pathlib import Path

import pytest

from agentic_video.utils.secrets import KEYS_FILE, SECRETS_FILE, forwarded, hand_keys, keys_of, load_secrets, written

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


def test_a_custom_file_may_have_quotes_and_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_keys_are_not_among_the_variables() -> None:
    environment = {
        "HF_HOME": "/hf",
        "HF_TOKEN": "t",
        "WANDB_PROJECT": "p",
        "WANDB_API_KEY": "w",
        "NCCL_DEBUG": "INFO",
        "VLLM_API_KEY": "v",
        "MY_JUDGE": "j",
        "HOME": "/root",
        "https_proxy": "http://proxy",
        "HTTPS_PROXY": "http://proxy",
        "NO_PROXY": "10.0.0.0/8",
        "NCCL_EMPTY": "",
    }
    environment |= {"all_proxy": "socks5://proxy", "http_proxy": "http://me:word@proxy"}
    names = ("HF_HOME", "all_proxy", "WANDB_PROJECT", "NCCL_DEBUG", "https_proxy", "HTTPS_PROXY", "NO_PROXY")
    assert forwarded(environment) == {name: environment[name] for name in names}
    assert keys_of(environment, ["MY_JUDGE", "NONE"]) == {
        "HF_TOKEN": "t",
        "MY_JUDGE": "j",
        "VLLM_API_KEY": "v",
        "WANDB_API_KEY": "w",
        "http_proxy": "http://me:word@proxy",
    }


def test_keys_are_handed_over_in_a_file_of_the_user_alone(tmp_path: Path) -> None:
    handed = hand_keys(tmp_path, {"OPENAI_API_KEY": "k", "HOME": "/root"})
    assert handed == {SECRETS_FILE: str(tmp_path / KEYS_FILE)}
    assert (tmp_path / KEYS_FILE).read_text() == 'OPENAI_API_KEY="k"\n'
    assert (tmp_path / KEYS_FILE).stat().st_mode & 0o777 == 0o600
    assert hand_keys(tmp_path, {"OPENAI_API_KEY": "k", SECRETS_FILE: "/own"}) == {SECRETS_FILE: "/own"}
    assert hand_keys(tmp_path, {"HOME": "/root"}) == {}
