"""The tiny model for commands that play, and the options that a command hands to its library."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.commands.parsing import parsed
from tests.evaluation.conftest import checkpoint, quiet_threads, recipe, small_world, tokenizer

__all__ = ["checkpoint", "quiet_threads", "recipe", "small_world", "tokenizer"]

Ask = Callable[..., Any]

TEACHER = ("--teacher", "http://h/v1", "--teacher-name", "m")


class CapturedOptions(Exception):
    """Stands for the work: holds the options that a command would have started it with."""


def read(command: str, *words: str) -> Any:
    """The options that a command line is read into."""
    return parsed([command, *words])[1]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """``ask(module, function, *words)``: the options with which a command calls its library's function."""

    def ask(module: ModuleType, function: str, *words: str) -> Any:
        def work(options: Any, *others: Any) -> None:
            raise CapturedOptions(options)

        monkeypatch.setattr(module, function, work)
        with pytest.raises(CapturedOptions) as captured:
            main([module.__name__.rpartition(".")[2], *words])
        return captured.value.args[0]

    return ask
