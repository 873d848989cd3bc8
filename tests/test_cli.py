"""The program itself: its list of commands, and what it imports."""

import subprocess
import sys
from importlib import import_module

import pytest

from agentic_video.cli import COMMANDS, main


def test_all_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    for name in COMMANDS:
        assert f" {name} {import_module(f'agentic_video.commands.{name}').HELP}" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = import_module(f"agentic_video.commands.{name}")
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert (module.__doc__ or "nothing").strip().splitlines()[0] in capsys.readouterr().out


def test_a_stray_word_is_refused_where_there_are_no_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "a=1"])
    assert ended.value.code == 2 and "not an option: a=1" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["no-such-command"]])
def test_what_is_no_command_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_only_the_command_that_is_asked_for_is_imported() -> None:
    code = "import sys; from agentic_video.cli import main\ntry: main(['summary', '--help'])\nexcept SystemExit: pass\n"
    code += "found = sorted(name for name in sys.modules if name.startswith('agentic_video.commands.'))\n"
    code += "print(*(name for name in found if name != 'agentic_video.commands.guard'))\n"
    code += "print('heavy', *(name for name in ('torch', 'verl', 'ray', 'transformers') if name in sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[-2:] == ["agentic_video.commands.summary", "heavy"]
