"""``--engine``."""

import argparse
from pathlib import Path

import pytest

from agentic_video.commands.engine import TOY, add_engine, choose_engine
from agentic_video.utils.errors import SetupError


def test_choosing_an_engine(tmp_path: Path) -> None:
    assert choose_engine("http://host:8000/v1", "auto", 0) == "chat"
    assert choose_engine("owner/name", "auto", 0) == "vllm"
    (tmp_path / "model.safetensors").write_bytes(b"small")
    assert choose_engine(str(tmp_path), "auto", 0) == TOY
    assert choose_engine(str(tmp_path), "auto", 1) == "vllm"
    assert choose_engine(str(tmp_path), "vllm", 0) == "vllm"
    assert choose_engine(str(tmp_path), "toy", 1) == TOY
    assert choose_engine(str(tmp_path), "my.own.Engine", 0) == "my.own.Engine"
    (tmp_path / "shards").mkdir()
    with pytest.raises(SetupError, match="model_merger"):
        choose_engine(str(tmp_path / "shards"), "auto", 0)
    with pytest.raises(SetupError, match="is an address"):
        choose_engine("http://host/v1", "vllm", 0)
    with pytest.raises(SetupError, match="--engine toy needs the folder of a checkpoint, and --teacher is an address"):
        choose_engine("http://host/v1", "toy", 0, "--teacher")


def test_the_option_takes_names_and_dotted_paths(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_engine(parser)
    assert parser.parse_args([]).engine == "auto"
    for name in ("auto", "chat", "vllm", "toy", "my.own.Engine"):
        assert parser.parse_args(["--engine", name]).engine == name
    with pytest.raises(SystemExit):
        parser.parse_args(["--engine", "nonsense"])
    assert "invalid choice: 'nonsense' (choose from auto, chat, vllm, vllm-server, toy)" in capsys.readouterr().err
