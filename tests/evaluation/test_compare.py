"""Comparisons of evaluations, by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.evaluation.compare import EvalRun, comparison, comparison_text, read_run, write_comparison
from agentic_video.evaluation.published import PublishedScore
from agentic_video.evaluation.results import SETTINGS_FILE, append, journal
from agentic_video.types.action import Answer
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn
from agentic_video.utils.errors import SetupError


def played(name: str, video: str, acc: float | None, frames: float = 8.0) -> Record:
    qa = VideoQA(name, video, "which?", "A", options=("x", "y"), data_source="one")
    rewards = {"frames": frames} if acc is None else {"acc": acc, "frames": frames}
    return Record(qa, Trajectory(name, "s", (), (Turn("a", Answer("A"), 1),), EndReason.ANSWER), rewards)


def two() -> list[EvalRun]:
    paper = PublishedScore("P", "b", "m", 70.0, "Table 1")
    first = EvalRun("first", (played("p", "a", 1), played("q", "a", 0), played("r", "b", 0), played("s", "c", 1)))
    second = (played("q", "a", 1, 20), played("r", "b", 0, 20), played("s", "c", 1, 20), played("t", "c", None, 20))
    return [first, EvalRun("second", second, paper)]


def test_differences_are_over_what_both_have() -> None:
    result = comparison(two())
    first, second = result["runs"]
    assert result["compared_with"] == "first" and first["difference"] is None
    assert (first["mean"], first["episodes"], second["episodes"]) == (0.5, 4, 3)
    assert second["mean"] == pytest.approx(2 / 3) and second["frames"] == 20.0
    # q, r, s: 1, 0, 0 in three videos; deviations 2/3, -1/3, -1/3: sqrt(3 / 2 * 6 / 9) / 3
    assert second["difference"] == {
        "questions": 3,
        "difference": pytest.approx(1 / 3),
        "error": pytest.approx(math.sqrt(1.0) / 3),
        "better": 1,
        "worse": 0,
    }


def test_the_text_has_papers_and_failures() -> None:
    runs = [*two(), EvalRun("third", (), problem="no such model")]
    text = comparison_text("t", comparison(runs))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    # the first's deviations by video: 0, -1/2, 1/2; sqrt(3 / 2 / 2) / 4
    assert rows[2] == ["first", "4", "50.0", "21.7", "-", "8.0", "-", "-", "-", "-"]
    assert rows[3][:8] == ["second", "3", "66.7", "33.3", "-", "20.0", "70.0", "+33.3 ± 33.3"]
    assert rows[4][0] == "third" and "- third: no such model" in text


def said(name: str, acc: float, robust: float | None, source: str = "one", **extra: str) -> Record:
    record = played(name, name, acc)
    rewards = record.rewards if robust is None else {**record.rewards, "acc_robust": robust}
    return replace(record, qa=replace(record.qa, data_source=source, extra=extra), rewards=rewards)


def test_the_same_answers_are_the_same_whatever_rule_grades_them() -> None:
    """The second run's own rule wants a bare letter; by the shared rule both are right wherever the other is."""
    strict = [said("p", 0, 1), said("q", 0, 1), said("r", 1, 1), said("s", 0, 0)]
    loose = [said("p", 1, 1), said("q", 1, 1), said("r", 1, 1), said("s", 0, 0)]
    runs = [
        EvalRun("loose", tuple(loose), rule="Baseline robust"),
        EvalRun("strict", tuple(strict), rule="VideoZoomer one_letter"),
    ]
    row = comparison(runs)["runs"][1]
    assert (row["mean"], row["robust"], row["difference_by"]) == (0.25, 0.75, "acc_robust")
    assert (row["difference"]["difference"], row["difference"]["worse"]) == (0.0, 0)
    text = comparison_text("t", comparison(runs))
    assert "by the shared rule for multiple choice" in text and "Warning" not in text


def test_rules_that_differ_are_named_where_no_shared_one_graded_all() -> None:
    first, second = [said("p", 1, 1), said("q", 1, None)], [said("p", 0, 1), said("q", 1, None)]
    runs = [EvalRun("one", tuple(first), rule="Eva robust"), EvalRun("two", tuple(second), rule="LongVT robust")]
    row = comparison(runs)["runs"][1]
    assert (row["difference_by"], row["difference"]["difference"]) == ("acc", -0.5)
    text = comparison_text("t", comparison(runs))
    assert "Warning: two and one are graded by rules of their own (LongVT robust; Eva robust)" in text
    same = [replace(run, rule="Eva robust") for run in runs]
    assert "Warning" not in comparison_text("t", comparison(same))


def test_published_numbers_stand_beside_the_score_that_papers_report() -> None:
    paper = PublishedScore("P", "mlvu_dev", "m", 68.8, "Table 1")
    records = [said(name, float(name == "p"), 1, "mlvu", category="count") for name in "pqrs"]
    records.append(said("t", 1, 1, "mlvu", category="ego"))
    text = comparison_text("t", comparison([EvalRun("zoom", tuple(records), paper)]))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert rows[0][6:8] == ["score", "published %"]
    # a quarter and one, in two of five questions
    assert (rows[2][2], rows[2][6], rows[2][7]) == ("40.0", "M-Avg 62.5", "68.8")
    half = replace(said("p", 0.5, None, "mine"), qa=VideoQA("p", "a", "?", "b", "open_ended"))
    text = comparison_text("t", comparison([EvalRun("zoom", (half,), paper)]))
    assert "68.8" not in text


def test_episodes_that_a_report_no_longer_counts_are_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "agent", two()[0].records)
    settings = {"system": {"class": "VideoZoomer", "answer_match": "one_letter"}}
    (folder / SETTINGS_FILE).write_text(json.dumps(settings))
    (folder / "report.json").write_text(json.dumps({"episodes": 3}))
    run = read_run(folder)
    assert (run.rule, run.counted) == ("VideoZoomer one_letter", 3)
    assert "agent: 1 of these episodes aren't in its report" in comparison_text("t", comparison([run]))
    (folder / "report.json").write_text("{")
    (folder / SETTINGS_FILE).write_text("[]")
    assert (read_run(folder).rule, read_run(folder).counted) == ("", None)


def test_nothing_was_evaluated() -> None:
    runs = [EvalRun("a", (), problem="x"), EvalRun("b", (), problem="y")]
    assert comparison(runs)["compared_with"] is None
    assert "- a: x" in comparison_text("t", comparison(runs))


def folder_of(path: Path, records: tuple[Record, ...]) -> Path:
    path.mkdir(parents=True)
    (path / SETTINGS_FILE).write_text("{}")
    with journal(path, 0) as file:
        for record in records:
            append(file, record)
    return path


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = two()
    one = folder_of(tmp_path / "x/agent", first.records)
    other = folder_of(tmp_path / "y/agent", second.records)
    assert main(["compare", str(one), str(other), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "| x/agent " in printed and "| y/agent " in printed and "+33.3 ± 33.3" in printed
    assert (tmp_path / "out/comparison.md").read_text() == printed
    assert json.loads((tmp_path / "out/comparison.json").read_text())["compared_with"] == "x/agent"
    assert main(["compare", str(one), str(other)]) == 0
    assert capsys.readouterr().out == printed
    assert write_comparison(tmp_path / "again", "Comparison", [read_run(one, "x/agent"), read_run(other, "y/agent")])


def test_evaluations_of_other_questions_are_no_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = folder_of(tmp_path / "one", two()[0].records)
    other = folder_of(tmp_path / "other", (played("z", "a", 1),))
    assert main(["compare", str(one), str(other), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {one}: no question (data_source and id) in common with {other};")
    assert said.count("\n") == 1 and not (tmp_path / "out").exists()
    shared = folder_of(tmp_path / "shared", (played("s", "c", None),))
    assert main(["compare", str(one), str(other), str(shared)]) == 0


def test_lines_that_are_no_records_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = two()
    one = folder_of(tmp_path / "one", first.records)
    other = folder_of(tmp_path / "other", second.records)
    file = other / "episodes-000.jsonl"
    file.write_bytes(file.read_bytes()[:-50])
    assert main(["compare", str(one), str(other)]) == 0
    told = capsys.readouterr()
    said = f"other: 1 line is left out; the first: {file} line 4: not a json object"
    assert told.err.startswith(said) and told.err.count("\n") == 1
    assert said in told.out and "one: 1 line" not in told.out
    file.write_text("{\n[]\n")
    assert main(["compare", str(one), str(other)]) == 2
    assert f"holds no episode yet; 2 lines are no records, the first: {file} line 1" in capsys.readouterr().err
    file.unlink()
    file.mkdir()
    assert main(["compare", str(one), str(other)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {file}: can't be read: Is a directory") and err.count("\n") == 1


@pytest.mark.parametrize("folders", [["x/agent"], ["x/agent", "nowhere"], ["x/agent", "empty"]])
def test_mistakes_cost_one_line(folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder_of(tmp_path / "x/agent", two()[0].records)
    folder_of(tmp_path / "empty", ())
    assert main(["compare", *(str(tmp_path / name) for name in folders)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    with pytest.raises(SetupError, match="no evaluation there"):
        read_run(tmp_path / "nowhere")
