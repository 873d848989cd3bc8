"""Lengths of trajectories in tokens and in calls."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.synthesis.lengths import spread, summarise
from agentic_video.types.record import Record
from tests.synthesis.made import look, record, write


def whole(made: Record, tokens: int) -> Record:
    return replace(made, trajectory=replace(made.trajectory, num_tokens=tokens))


@pytest.mark.parametrize(
    ("values", "quantiles"),
    [
        ([7], [7, 7, 7, 7, 7]),
        ([4, 1, 3, 2], [1, 1, 2, 3, 4]),  # 0.4, 1, 2, 3 and 3.6 of 4 trajectories
        (list(range(1, 11)), [1, 3, 5, 8, 9]),
    ],
)
def test_a_quantile_is_the_least_length_that_its_share_does_not_exceed(values: list[int], quantiles: list[int]) -> None:
    found = spread(values)
    assert found is not None
    assert found["quantiles"] == dict(zip(("10", "25", "50", "75", "90"), quantiles, strict=True))
    assert (found["least"], found["most"], found["count"]) == (min(values), max(values), len(values))


def test_lengths_and_calls() -> None:
    # made by hand: five tokens a turn; one turn more than calls
    records = [whole(record(), 100), whole(record([look(0, 9)]), 300), record([look(0, 9), look(1, 5)]), record()]
    summary = summarise(records)
    quantiles = {"10": 5, "25": 5, "50": 5, "75": 10, "90": 15}
    assert summary["said"] == {"count": 4, "mean": 8.75, "least": 5, "quantiles": quantiles, "most": 15}
    # those whose engine counted nothing are left out
    assert summary["whole"] == {
        "count": 2,
        "mean": 200.0,
        "least": 100,
        "quantiles": {"10": 100, "25": 100, "50": 100, "75": 300, "90": 300},
        "most": 300,
    }
    assert summary["calls"] == {"0": 0.5, "1": 0.25, "2": 0.25} and summary["trajectories"] == 4


def test_the_command_reads_records_of_any_system(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "kept.jsonl", [record([look(0, 9)]), record(system="eva")])
    out = tmp_path / "lengths.json"
    assert main(["lengths", str(file), "--out", str(out)]) == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert ["generated", "2", "8", "5", "5", "5", "5", "10", "10", "10"] in rows
    assert ["0", "50.0 %"] in rows and ["1", "50.0 %"] in rows
    assert json.loads(out.read_text())["whole"] is None
    assert main(["lengths", str(tmp_path / "no")]) == 2
