from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.commands import preferences
from tests.commands.conftest import Ask

WORDS = ("--judge", "http://j/v1", "--judge-name", "j", "--out", "o")
PLAY = ("--data", "rows.parquet", "--teacher", "http://h/v1", "--teacher-name", "m", "--samples", "4")


def test_records_are_labelled_as_they_are(ask: Ask) -> None:
    options = ask(preferences, "label", *WORDS, "--records", "run", "--rejected", "wrong-and-guess", "--size", "11000")
    assert options.records == (Path("run"),) and options.player is None and options.data == ()
    assert (options.rejected, options.size, options.right_from) == ("wrong-and-guess", 11000, 0.5)
    assert (options.judge.url, options.judge.name, options.judge.max_tokens) == ("http://j/v1", "j", 16)


def test_rows_are_played_by_the_paper_s_system_unless_another_is_named(ask: Ask) -> None:
    options = ask(preferences, "label", *WORDS, *PLAY)
    assert (options.player.recipe.name, options.samples, options.data) == ("eva", 4, (Path("rows.parquet"),))
    assert ask(preferences, "label", *WORDS, *PLAY, "--system", "videozoomer").player.recipe.name == "videozoomer"


def test_a_word_too_many_where_nothing_is_played(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preferences", *WORDS, "--records", "run", "a.b=1"]) == 2
    assert capsys.readouterr().err == "error: not an option: a.b=1\n"
