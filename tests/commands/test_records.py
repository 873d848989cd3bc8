import argparse
from pathlib import Path

import pytest

from agentic_video.commands.records import add_from_step, add_records


def test_folders_and_a_step() -> None:
    parser = argparse.ArgumentParser()
    add_records(parser)
    add_from_step(parser, 0)
    read = parser.parse_args(["a.jsonl", "outputs/run-001"])
    assert (read.records, read.from_step) == ([Path("a.jsonl"), Path("outputs/run-001")], 0)
    assert parser.parse_args(["a", "--from-step", "12"]).from_step == 12


@pytest.mark.parametrize("words", [[], ["a", "--from-step", "-1"], ["a", "--from-step", "x"]])
def test_what_cannot_be_meant_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_records(parser)
    add_from_step(parser, 0)
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    assert ("--from-step" if words else "PATH") in capsys.readouterr().err
