import argparse
from importlib import import_module
from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.commands.eval import add_arguments, options_of
from agentic_video.commands.parsing import COMMANDS
from agentic_video.commands.paths import file_to_write, folder_to_write, model, path
from tests.config.configs import RECIPES
from tests.launch.checkpoints import write_checkpoint


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_home_folder_is_put_in_for_its_sign(home: Path) -> None:
    assert path("~/x") == home / "x" and path("a/~b") == Path("a/~b") and path("/x") == Path("/x")
    assert model("~/x") == f"{home}/x"
    assert [model(one) for one in ("owner/name", "http://h/v1", "")] == ["owner/name", "http://h/v1", ""]


@pytest.mark.parametrize("words", [("view", ""), ("summary", ""), ("view", "x", "--out", ""), ("mine", "")])
def test_an_empty_one_is_none(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    err = capsys.readouterr().err
    assert ended.value.code == 2 and err.count("\n") == 1 and "expected a file or a folder, got ''" in err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_s_paths_are_read_so(name: str) -> None:
    parser = argparse.ArgumentParser()
    import_module(f"agentic_video.commands.{name}").add_arguments(parser)
    assert [action.dest for action in parser._actions if action.type is Path] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("eval --system eva --out {file}", "--out: {file}: a file; name a folder"),
        ("distill --out {file}/out", "--out: {file}/out: {file} is a file; name a folder"),
        ("compare a b --out={file}", "--out: {file}: a file; name a folder"),
        ("reproduce eva --laptop --out {file}", "--out: {file}: a file; name a folder"),
        ("filter run --out {file}/x.jsonl", "--out: {file}/x.jsonl: {file} is a file; choose another folder"),
        ("mine run --out {file}/x.jsonl", "--out: {file}/x.jsonl: {file} is a file; choose another folder"),
        ("templates run --out {home}", "--out: {home}: a folder; name a file"),
    ],
)
def test_what_stands_in_the_way_of_an_output_is_said_at_once(
    words: str, said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "afile"
    file.touch()
    with pytest.raises(SystemExit) as ended:
        main(words.format(file=file, home=home).split())
    assert ended.value.code == 2
    assert said.format(file=file, home=home) in capsys.readouterr().err


def test_outputs_may_have_folders_that_are_not_there(home: Path) -> None:
    assert folder_to_write("~/a/b") == home / "a" / "b" and file_to_write("~/a/b.jsonl") == home / "a" / "b.jsonl"
    (home / "there.jsonl").touch()
    assert folder_to_write(str(home)) == home and file_to_write("~/there.jsonl") == home / "there.jsonl"


@pytest.mark.parametrize("by_variable", [True, False])
def test_an_evaluation_s_places_are_in_the_home_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    folder = write_checkpoint(home / "model")
    words = ["--recipe", str(RECIPES / "eva"), "--data=~/rows.jsonl", "--out=~/out"]
    if by_variable:
        monkeypatch.setenv("MODEL_PATH", "~/model")
    else:
        words.append("--model=~/model")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args(words)
    arguments.overrides = []
    options = options_of(arguments, 0)
    assert (options.model.model, options.data, options.out) == (str(folder), (home / "rows.jsonl",), home / "out")
