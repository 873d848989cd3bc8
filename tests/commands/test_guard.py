"""Exit statuses of the commands that run models."""

import argparse
from collections.abc import Callable
from typing import Any

import pytest
from omegaconf import OmegaConf

from agentic_video.commands.guard import guarded
from agentic_video.types.row import RowError
from agentic_video.utils.errors import SetupError


def failing(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def work(arguments: argparse.Namespace) -> int:
        raise error

    return work


def unset(arguments: argparse.Namespace) -> int:
    return int(OmegaConf.create({"url": "${oc.env:NO_SUCH_VARIABLE_HERE}"}).url)


@pytest.mark.parametrize(
    ("work", "status", "said"),
    [
        (lambda arguments: arguments.status, 1, ""),
        (failing(SetupError("set this")), 2, "error: set this\n"),
        (failing(RowError("bad row")), 2, "error: bad row\n"),
        (failing(KeyboardInterrupt()), 130, "\nstopped; the same command goes on from here\n"),
    ],
)
def test_what_stops_a_command(work: Callable[[Any], int], status: int, said: str, capsys: Any) -> None:
    assert guarded(work, argparse.Namespace(status=1)) == status
    assert capsys.readouterr().err == said


def test_a_variable_that_is_not_set_is_named_with_its_key(capsys: Any) -> None:
    assert guarded(unset, argparse.Namespace()) == 2
    said = capsys.readouterr().err
    assert "NO_SUCH_VARIABLE_HERE" in said and said.endswith("set that variable, or the key itself: url=...\n")


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(RuntimeError):
        guarded(failing(RuntimeError("a bug")), argparse.Namespace())
