"""Comparisons of evaluations, by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.evaluation.compare import EvalRun, comparison, comparison_text, read_run
from agentic_video.evaluation.published import PublishedScore
from agentic_video.evaluation.results import SETTINGS_FILE, append, journal
from agentic_video.types.record import Record
from tests.evaluation.records import cells, record


def played(name: str, video: str, acc: float | None, frames: float = 8.0) -> Record:
    rewards = {"frames": frames} if acc is None else {"acc": acc, "frames": frames}
    return record(name, "A", source="one", video=video, **rewards)


PAPER = PublishedScore("P", "b", "m", 70.0, "Table 1")
FIRST = EvalRun("first", (played("p", "a", 1), played("q", "a", 0), played("r", "b", 0), played("s", "c", 1)))
SECOND = EvalRun(
    "second",
    (played("q", "a", 1, 20), played("r", "b", 0, 20), played("s", "c", 1, 20), played("t", "c", None, 20)),
    PAPER,
)


def test_differences_are_over_shared_questions() -> None:
    result = comparison([FIRST, SECOND])
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
    failed = [EvalRun("a", (), problem="x"), EvalRun("b", (), problem="y")]
    assert comparison(failed)["compared_with"] is None


def test_the_text_has_papers_and_failures() -> None:
    text = comparison_text("t", comparison([FIRST, SECOND, EvalRun("third", (), problem="no such model")]))
    rows = cells(text)
    # the first's deviations by video: 0, -1/2, 1/2; sqrt(3 / 2 / 2) / 4
    assert rows[2] == ["first", "4", "50.0", "21.7", "-", "8.0", "-", "-", "-", "-"]
    assert rows[3][:8] == ["second", "3", "66.7", "33.3", "-", "20.0", "70.0", "+33.3 ± 33.3"]
    assert rows[4][0] == "third" and "- third: no such model" in text


def said(name: str, acc: float, robust: float | None, source: str = "one", **extra: str) -> Record:
    rewards = {"acc": acc, "frames": 8.0} | ({} if robust is None else {"acc_robust": robust})
    return record(name, "A", source=source, video=name, extra=extra, **rewards)


def test_runs_are_compared_by_the_shared_rule_where_it_graded_all() -> None:
    """The second run's own rule wants a bare letter; by the shared rule both are right wherever the other is."""
    strict = (said("p", 0, 1), said("q", 0, 1), said("r", 1, 1), said("s", 0, 0))
    loose = (said("p", 1, 1), said("q", 1, 1), said("r", 1, 1), said("s", 0, 0))
    runs = [EvalRun("loose", loose, rule="Baseline robust"), EvalRun("strict", strict, rule="VideoZoomer one_letter")]
    row = comparison(runs)["runs"][1]
    assert (row["mean"], row["robust"], row["difference_by"]) == (0.25, 0.75, "acc_robust")
    assert (row["difference"]["difference"], row["difference"]["worse"]) == (0.0, 0)
    assert "Warning" not in comparison_text("t", comparison(runs))
    # elsewhere the rules are named where they differ
    first, second = (said("p", 1, 1), said("q", 1, None)), (said("p", 0, 1), said("q", 1, None))
    runs = [EvalRun("one", first, rule="Eva robust"), EvalRun("two", second, rule="LongVT robust")]
    row = comparison(runs)["runs"][1]
    assert (row["difference_by"], row["difference"]["difference"]) == ("acc", -0.5)
    (warning,) = (line for line in comparison_text("t", comparison(runs)).splitlines() if line.startswith("Warning"))
    assert "LongVT robust; Eva robust" in warning
    assert "Warning" not in comparison_text("t", comparison([replace(run, rule="Eva robust") for run in runs]))


def test_published_numbers_are_compared_with_the_headline() -> None:
    paper = PublishedScore("P", "mlvu_dev", "m", 68.8, "Table 1")
    records = [said(name, float(name == "p"), 1, "mlvu", category="count") for name in "pqrs"]
    records.append(said("t", 1, 1, "mlvu", category="ego"))
    rows = cells(comparison_text("t", comparison([EvalRun("zoom", tuple(records), paper)])))
    assert rows[0][6:8] == ["score", "published %"]
    # a quarter and one, in two of five questions
    assert (rows[2][2], rows[2][6], rows[2][7]) == ("40.0", "M-Avg 62.5", "68.8")
    half = record("p", "b", source="mine", kind="open_ended", acc=0.5)
    assert "68.8" not in comparison_text("t", comparison([EvalRun("zoom", (half,), paper)]))


def folder_of(path: Path, *records: Record) -> Path:
    path.mkdir(parents=True)
    (path / SETTINGS_FILE).write_text("{}")
    with journal(path, 0) as file:
        for made in records:
            append(file, made)
    return path


def test_episodes_beyond_the_report_are_counted(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "agent", *FIRST.records)
    settings = {"system": {"class": "VideoZoomer", "answer_match": "one_letter"}}
    (folder / SETTINGS_FILE).write_text(json.dumps(settings))
    (folder / "report.json").write_text(json.dumps({"episodes": 3}))
    run = read_run(folder)
    assert (run.rule, run.counted) == ("VideoZoomer one_letter", 3)
    assert comparison([run])["runs"][0]["not_in_report"] == 1
    (folder / "report.json").write_text("{")
    (folder / SETTINGS_FILE).write_text("[]")
    assert (read_run(folder).rule, read_run(folder).counted) == ("", None)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = folder_of(tmp_path / "x/agent", *FIRST.records), folder_of(tmp_path / "y/agent", *SECOND.records)
    assert main(["compare", str(one), str(other), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert [row[0] for row in cells(printed)[2:]] == ["x/agent", "y/agent"] and "+33.3 ± 33.3" in printed
    assert (tmp_path / "out/comparison.md").read_text() == printed
    assert json.loads((tmp_path / "out/comparison.json").read_text())["compared_with"] == "x/agent"
    # without a question in common there is nothing to compare
    apart = folder_of(tmp_path / "apart", played("z", "a", 1))
    assert main(["compare", str(one), str(apart), "--out", str(tmp_path / "none")]) == 2
    assert not (tmp_path / "none").exists()
    assert main(["compare", str(one), str(apart), str(folder_of(tmp_path / "shared", played("s", "c", None)))]) == 0


def test_bad_lines_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = folder_of(tmp_path / "one", *FIRST.records), folder_of(tmp_path / "other", *SECOND.records)
    file = other / "episodes-000.jsonl"
    file.write_bytes(file.read_bytes()[:-50])
    assert main(["compare", str(one), str(other)]) == 0
    assert f"{file} line 4" in capsys.readouterr().err
    file.write_text("{\n[]\n")
    assert main(["compare", str(one), str(other)]) == 2
    assert f"{file} line 1" in capsys.readouterr().err
    file.unlink()
    file.mkdir()
    assert main(["compare", str(one), str(other)]) == 2


@pytest.mark.parametrize("folders", [["x/agent"], ["x/agent", "nowhere"], ["x/agent", "empty"]])
def test_mistakes_cost_one_line(folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder_of(tmp_path / "x/agent", *FIRST.records)
    folder_of(tmp_path / "empty")
    assert main(["compare", *(str(tmp_path / name) for name in folders)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
