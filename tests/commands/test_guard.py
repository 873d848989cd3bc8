"""A mistake or an interruption costs one line, and has its exit status."""

import errno
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from agentic_video.cli import main
from agentic_video.commands import mine
from agentic_video.commands.guard import guarded
from agentic_video.types.row import RowError
from agentic_video.utils.errors import SetupError
from tests.conftest import REPOSITORY


def failing(error: BaseException) -> Callable[..., int]:
    def work(*options: object) -> int:
        raise error

    return work


def unset() -> int:
    return int(OmegaConf.create({"url": "${oc.env:NO_SUCH_VARIABLE_HERE}"}).url)


@pytest.mark.parametrize(
    ("work", "status", "said"),
    [
        (lambda: 1, 1, ""),
        (failing(SetupError("set this")), 2, "error: set this\n"),
        (failing(RowError("bad row")), 2, "error: bad row\n"),
        (failing(ConfigCompositionException("no such key\n  did you mean\n")), 2, "error: no such key did you mean\n"),
        (
            failing(OSError(errno.ENOSPC, "No space left on device", "/out/x")),
            2,
            r"error: /out/x: No space .*; free some .*\n",
        ),
        (failing(KeyboardInterrupt()), 130, "\nstopped; the same command resumes from here\n"),
    ],
)
def test_what_stops_a_command(work: Callable[[], int], status: int, said: str, capsys: Any) -> None:
    assert guarded(work) == status
    assert re.fullmatch(said, capsys.readouterr().err)


def test_a_variable_that_is_not_set_is_named_with_its_key(capsys: Any) -> None:
    assert guarded(unset) == 2
    said = capsys.readouterr().err
    assert "NO_SUCH_VARIABLE_HERE" in said and said.endswith("; set that variable, or the key itself: url=...\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("a library's own")])
def test_a_mistake_of_ours_is_not_hidden(error: Exception) -> None:
    with pytest.raises(type(error)):
        guarded(failing(error))


def test_any_command_can_be_interrupted(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mine, "mine", failing(KeyboardInterrupt()))
    assert main(["mine", "x", "--out", "y.jsonl"]) == 130
    assert capsys.readouterr().err == "\nstopped\n"


def test_an_interruption_while_modules_are_imported_too() -> None:
    code = "import os, signal, sys; from agentic_video import cli\nfrom agentic_video.commands import parsing\n"
    code += "def interrupted(name): os.kill(os.getpid(), signal.SIGINT)\n"
    code += "parsing.import_module = interrupted; sys.exit(cli.main(['doctor']))"
    job = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        # what a shell starts in the background inherits that it ignores this signal
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (job.returncode, job.stderr) == (128 + signal.SIGINT, "\nstopped\n")


def test_a_reader_that_has_gone_is_no_mistake() -> None:
    command = f"{sys.executable} -m agentic_video.cli convert --list | true; echo ${{PIPESTATUS[0]}} >&2"
    job = subprocess.run(["bash", "-c", command], cwd=REPOSITORY, capture_output=True, text=True)
    assert job.stderr in ("0\n", "1\n")
