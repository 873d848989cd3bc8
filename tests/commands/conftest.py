"""The tiny model for commands that play, and what a command asks of its library."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from agentic_video.cli import main
from tests.evaluation.conftest import checkpoint, quiet_threads, recipe, small_world, tokenizer

__all__ = ["checkpoint", "quiet_threads", "recipe", "small_world", "tokenizer"]

Ask = Callable[..., Any]

TEACHER = ("--teacher", "http://h/v1", "--teacher-name", "m")


class Asked(Exception):
    """Stands for the work: holds the options that a command would have started it with."""


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """``ask(module, function, *words)``: the options with which a command calls its library's function."""

    def ask(module: ModuleType, function: str, *words: str) -> Any:
        def work(options: Any, *others: Any) -> None:
            raise Asked(options)

        monkeypatch.setattr(module, function, work)
        with pytest.raises(Asked) as asked:
            main([module.__name__.rpartition(".")[2], *words])
        return asked.value.args[0]

    return ask
