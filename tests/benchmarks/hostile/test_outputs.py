"""A small part of the hostile outputs: counted, and gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.hostile import outputs
from benchmarks.hostile.run import main
from tests.hostile_cases import CASES


def test_nothing_that_is_said_raises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "outputs.jsonl"
    assert main(["outputs", "--count", "200", "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["outputs", "--count", "400", "--out", str(out)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result.keys() == CASES.keys()
    for found in result.values():
        assert 400 <= found["outputs"] < 420
        assert (found["exceptions"], found["other_problems"]) == (0, 0), found["first_problems"]
    with pytest.raises(SystemExit):
        main(["outputs", "--seed", "5", "--count", "400", "--out", str(out)])


def test_an_exception_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(outputs, "play", broken)
    part = next(outputs.parts(0, 10, []))
    assert part["outputs"] == 10 == sum(part["problems"].values())
    assert outputs.summary([part])[part["system"]]["exceptions"] == 10
