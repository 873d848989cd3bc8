import json
from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.synthesis.templates import summarise, template_of
from agentic_video.types.action import ToolCall
from tests.synthesis.made import OPEN, look, lookup, record, write


@pytest.mark.parametrize(
    ("calls", "template"),
    [
        ([], "direct"),
        ([look(10, 90)], "single_pass"),
        ([lookup("00:10"), look(10, 90)], "timestamp_grounded"),
        ([lookup("00:10"), lookup("00:20"), look(10, 90)], "timestamp_grounded"),
        ([look(0, 100), look(20, 60)], "hierarchical"),
        ([look(0, 100), look(0, 60)], "hierarchical"),
        ([look(0, 400), look(100, 300), look(120, 180)], "hierarchical"),
        ([look(0, 100), look(200, 300)], "multi_interval"),
        ([look(0, 100), look(50, 150)], "multi_interval"),
        ([look(0, 100), look(200, 300), look(400, 500)], "multi_interval"),
        ([look(20, 60), look(0, 100)], "other"),  # wider
        ([look(0, 100), look(0, 100)], "other"),  # the same again
        ([look(0, 100), look(200, 300), look(210, 250)], "other"),
        ([lookup("00:10")], "other"),
        ([look(0, 100), lookup("00:10")], "other"),
        ([ToolCall("choose_frames", {"start": "x"})], "single_pass"),
        ([ToolCall("choose_frames", {}), ToolCall("choose_frames", {"start": "x", "end": None})], "other"),
        ([ToolCall("zoom", {})], "other"),
    ],
)
def test_the_sequence_of_actions_decides(calls: list[ToolCall], template: str) -> None:
    assert template_of(record(calls).trajectory) == template
    assert template_of(record(calls, answer=None).trajectory) == "unfinished"


def test_shares_accuracy_and_calls() -> None:
    records = [
        record(rewards={"acc": 1.0}),
        record(rewards={"acc": 0.0}),
        record([look(0, 100), look(20, 60)], answer="B"),  # not graded: the choice is right
        record([look(0, 100), look(20, 60)], answer="a cup", qa=OPEN),  # not graded, and nothing says
    ]
    summary = summarise(records)
    assert summary["all"] == {"count": 4, "share": 1.0, "accuracy": pytest.approx(2 / 3), "calls": 1.0}
    templates = summary["templates"]
    assert isinstance(templates, dict)
    assert templates["direct"] == {"count": 2, "share": 0.5, "accuracy": 0.5, "calls": 0.0}
    assert templates["hierarchical"] == {"count": 2, "share": 0.5, "accuracy": 1.0, "calls": 2.0}
    assert templates["other"] == {"count": 0, "share": 0.0, "accuracy": None, "calls": 0.0}
    assert summary["actions"] == {"0": templates["direct"], "2": templates["hierarchical"]}


def test_the_command_reads_a_run_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "run" / "episodes" / "step_000001.jsonl", [record([look(0, 100)]), record(system="eva")])
    bad = write(tmp_path / "more.jsonl", [record(answer="A")])
    with bad.open("a") as lines:
        lines.write("no record\n")
    out = tmp_path / "made" / "templates.json"
    assert main(["templates", str(tmp_path / "run"), str(bad), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "1 episodes of other systems left out" in said.err and "more.jsonl line 2" in said.err
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.out.splitlines()]
    assert ["B single-pass selection", "1", "50.0", "100.0", "1.00"] in rows
    assert ["A direct answering", "1", "50.0", "0.0", "0.00"] in rows
    assert json.loads(out.read_text())["trajectories"] == 2


def test_nothing_to_read_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["templates", str(tmp_path / "no")]) == 2
    assert main(["templates", str(tmp_path)]) == 2
    capsys.readouterr()
    assert main(["templates", str(write(tmp_path / "eva.jsonl", [record(system="eva")]))]) == 2
    assert "eva" in capsys.readouterr().err.splitlines()[-1]
